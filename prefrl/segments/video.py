"""Pictures to H.264 clips that every browser plays, and a look at what a clip holds."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prefrl.errors import ConfigError, DataError

CODECS = ("h264", "vp8", "vp9", "av1")
PIXEL_FORMATS = ("yuv420p", "yuvj420p")
MAX_FPS = 1000

# no B-frames: the first picture is at time 0 and the last one is complete, so that a loop closes without a jump
_X264 = {"preset": "veryfast", "crf": "23", "bf": "0"}
# containers that are looked into; others could name further files or addresses to be opened
# a file that was trimmed without being encoded anew keeps pictures that it does not show: they are no damage
_READING = {"format_whitelist": "mov,matroska,webm,avi,gif", "ignore_editlist": "1"}
_BT709, _LIMITED_RANGE = 1, 1
_EBML, _SEGMENT = b"\x1a\x45\xdf\xa3", b"\x18\x53\x80\x67"  # how a webm and its one large part begin


@dataclass(frozen=True)
class VideoInfo:
    """What a video holds.

    Attributes:
        codec: FFmpeg's name of it, e.g. ``h264``.
        pixel_format: FFmpeg's name of it, e.g. ``yuv420p``.
        width: Pixels.
        height: Pixels.
        n_frames: Pictures that can be decoded.
        fps: Pictures a second; 0 where the video does not say.
        faststart: Whether it is an mp4 whose index comes before its pictures, so that it plays while it loads.
        container: ``mp4`` or ``webm``, else FFmpeg's name of it, such as ``mov``, ``matroska`` or ``avi``.
    """

    codec: str
    pixel_format: str
    width: int
    height: int
    n_frames: int
    fps: float
    faststart: bool
    container: str = "mp4"


def media_type(video: bytes) -> str:
    """What a clip that browsers play is called where it is sent: ``video/mp4`` or ``video/webm``."""
    return "video/webm" if video.startswith(_EBML) else "video/mp4"


def encode_clip(frames: Sequence[NDArray[np.uint8]], fps: float, *, pause_s: float = 0.4) -> bytes:
    """Encodes pictures as an H.264 mp4; equal pictures give equal bytes.

    Nothing is rescaled: odd sizes get one more row or column, a copy of the last one.

    Args:
        frames: Pictures of equal shape (height, width, 3), RGB, uint8.
        fps: Pictures a second, above 0 and at most 1000.
        pause_s: Seconds for which the last picture stands still, so that the end of a loop is seen; at least 0.

    Returns:
        An mp4 of ``len(frames) + round(pause_s * fps)`` pictures, its index first.

    Raises:
        ConfigError: PyAV is not installed.
        DataError: There are no frames, they are not such pictures, or the rate or pause is not such a number.
    """
    rate = _rate(fps)
    if not (math.isfinite(pause_s) and pause_s >= 0):
        raise DataError(f"the pause at the end of a clip is {pause_s} s; it must be a finite number of at least 0")
    height, width = _check(frames)
    av = _import_av()
    buffer = io.BytesIO()

    def reopen(url: str, flags: int, options: dict[str, str]) -> io.BytesIO:
        return io.BytesIO(buffer.getvalue())  # FFmpeg reads what it wrote once more, to put the index first

    try:
        with av.open(buffer, "w", format="mp4", options={"movflags": "+faststart"}, io_open=reopen) as container:
            stream = container.add_stream("libx264", rate=rate, options=_X264)
            stream.width, stream.height, stream.pix_fmt = width + width % 2, height + height % 2, "yuv420p"
            stream.colorspace = stream.color_primaries = stream.color_trc = _BT709
            stream.color_range = _LIMITED_RANGE
            stream.codec_context.thread_count = 1  # with more, the bytes depend on their number
            for i in range(len(frames) + round(pause_s * fps)):
                if i < len(frames):
                    padded = np.pad(frames[i], ((0, height % 2), (0, width % 2), (0, 0)), mode="edge")
                    rgb = av.VideoFrame.from_ndarray(padded, format="rgb24")
                    picture = rgb.reformat(format="yuv420p", dst_colorspace=_BT709, dst_color_range=_LIMITED_RANGE)
                picture.pts, picture.time_base = i, 1 / rate
                container.mux(stream.encode(picture))
            container.mux(stream.encode())
    except (av.FFmpegError, ValueError) as error:  # an encoder that is missing is a ValueError
        raise DataError(f"{len(frames)} pictures of {width} x {height} cannot be encoded: {_reason(error)}") from error
    return buffer.getvalue()


def probe_video(data: bytes) -> VideoInfo:
    """Decodes a whole video (mp4, webm, avi, gif) and says what it holds.

    Raises:
        ConfigError: PyAV is not installed.
        DataError: The bytes are empty, no video, damaged or cut off.
    """
    av = _import_av()
    if not data:
        raise DataError("a video of 0 bytes: draw the clip again")
    try:
        with av.open(io.BytesIO(data), "r", options=_READING) as container:
            stream = container.streams.video[0]
            if stream.codec_context is None:  # PyAV before 18.1 crashes at decoding it
                raise DataError(f"{len(data)} bytes hold pictures of a kind that is not known")
            n_frames = n_damaged = 0
            for frame in container.decode(stream):
                n_frames += 1
                n_damaged += frame.is_corrupt
            n_promised, average = stream.frames, stream.average_rate
            context, names = stream.codec_context, container.format.name.split(",")
            codec, pixel_format = context.codec.canonical_name, context.pix_fmt or "unknown"
            width, height = context.width, context.height
    except IndexError as error:
        raise DataError(f"{len(data)} bytes hold no pictures") from error
    except (av.FFmpegError, ValueError, RuntimeError) as error:
        raise DataError(f"{len(data)} bytes are not a video that can be decoded: {_reason(error)}") from error
    if n_frames == 0 or n_frames < n_promised:
        raise DataError(f"a video of {n_promised} pictures is cut off or damaged: {n_frames} can be decoded")
    if n_damaged:
        raise DataError(f"a video of {n_frames} pictures is damaged: {n_damaged} of them cannot be decoded whole")
    boxes = _boxes(data) if "mp4" in names else {}
    if boxes.get(b"", 0) > len(data) or _is_cut_webm(data):
        raise DataError(f"a video is cut off after {len(data)} bytes: {n_frames} pictures can be decoded")
    faststart = b"moov" in boxes and b"mdat" in boxes and boxes[b"moov"] < boxes[b"mdat"]
    rate = float(average or 0)
    return VideoInfo(codec, pixel_format, width, height, n_frames, rate, faststart, _container(data, names))


def why_unplayable(info: VideoInfo) -> str | None:
    """Says in one sentence why a browser would not play it, or None where it plays."""
    if info.codec not in CODECS:
        return f"Browsers do not play the codec {info.codec}, only {', '.join(CODECS)}."
    if info.pixel_format not in PIXEL_FORMATS:
        return f"Browsers do not play the pixel format {info.pixel_format}, only {', '.join(PIXEL_FORMATS)}."
    if info.width % 2 or info.height % 2:
        return f"Browsers do not play the size {info.width} x {info.height}: both numbers must be even."
    return None


def _import_av() -> Any:
    try:
        import av
    except ImportError as error:
        raise ConfigError(f"video needs the extra `app`: pip install 'prefrl[app]' ({error})") from error
    return av


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error)  # FFmpeg's words, without the name of a file that is none


def _rate(fps: float) -> Fraction:
    if not (math.isfinite(fps) and 0 < fps <= MAX_FPS):
        raise DataError(f"a clip of {fps} frames a second: it must be a number above 0, at most {MAX_FPS}")
    rate = Fraction(fps).limit_denominator(1001)  # 1001 is that of broadcast rates such as 29.97
    if rate == 0:
        raise DataError(f"a clip of {fps} frames a second is too slow")
    return rate


def _check(frames: Sequence[Any]) -> tuple[int, int]:
    """Height and width of the pictures, which are all alike."""
    if len(frames) == 0:
        raise DataError("a clip needs at least one frame, but there are none")
    for i, frame in enumerate(frames):
        shape, dtype = np.shape(frame), getattr(frame, "dtype", type(frame).__name__)
        if len(shape) != 3 or shape[2] != 3 or 0 in shape or dtype != np.uint8:
            raise DataError(f"frame {i} is {dtype} of shape {shape}; it must be uint8 of shape (height, width, 3)")
        if shape != np.shape(frames[0]):
            raise DataError(f"frame {i} has shape {shape}, but the first one {np.shape(frames[0])}")
    height, width, _ = np.shape(frames[0])
    return height, width


def _container(data: bytes, names: list[str]) -> str:
    """Of the names that FFmpeg gives a family of containers, the one that this file says it is."""
    if "mp4" in names:
        return "mov" if data[4:12] == b"ftypqt  " else "mp4"
    if "webm" in names:
        return "webm" if b"webm" in data[:64] else "matroska"
    return names[0]


def _is_cut_webm(data: bytes) -> bool:
    """Whether a webm has fewer bytes than it says; FFmpeg takes its end for that of the video."""
    if not data.startswith(_EBML):
        return False
    n_head, begin = _ebml_size(data, len(_EBML))
    at = begin + (n_head or 0)
    if data[at : at + 4] != _SEGMENT:
        return False
    size, begin = _ebml_size(data, at + 4)
    return size is not None and begin + size > len(data)


def _ebml_size(data: bytes, at: int) -> tuple[int | None, int]:
    """A size of 1 to 8 bytes (None: not known when it was written), and where what it is about begins."""
    n_bytes = 9 - data[at].bit_length() if at < len(data) else 1
    bits = 7 * n_bytes
    size = int.from_bytes(data[at : at + n_bytes]) & ((1 << bits) - 1)
    return None if size == (1 << bits) - 1 else size, at + n_bytes


def _boxes(data: bytes) -> dict[bytes, int]:
    """The outermost boxes of an mp4: name -> where the first one of that name begins; "" -> where its last one ends."""
    boxes: dict[bytes, int] = {}
    start = 0
    while start + 8 <= len(data):
        size, name = int.from_bytes(data[start : start + 4]), data[start + 4 : start + 8]
        if size == 1:  # then the size follows in 64 bits
            size = int.from_bytes(data[start + 8 : start + 16])
        boxes.setdefault(name, start)
        start = start + size if size >= 8 else len(data)  # 0: up to the end
        if name in (b"moov", b"mdat", b"moof"):  # others may be rubbish behind the end
            boxes[b""] = start
    return boxes
