"""Clips as browsers want them: every frame, in its own size and colours, with the index first."""

from __future__ import annotations

import dataclasses
import io
import subprocess
import sys

import numpy as np
import pytest

from prefrl.errors import ConfigError, DataError
from prefrl.segments.video import VideoInfo, encode_clip, probe_video, why_unplayable

av = pytest.importorskip("av", reason="needs the extra `app`")

PLAYS = VideoInfo("h264", "yuv420p", width=64, height=48, n_frames=10, fps=30.0, faststart=True)


def clip(n_frames: int, height: int = 48, width: int = 64) -> list[np.ndarray]:
    """Flat frames of different grey: number i is 20 * i bright."""
    return [np.full((height, width, 3), 20 * i, np.uint8) for i in range(n_frames)]


def decode(data: bytes) -> list[np.ndarray]:
    with av.open(io.BytesIO(data)) as container:
        return [frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)]


def brightness(data: bytes) -> list[int]:
    return [round(float(frame.mean()) / 20) for frame in decode(data)]


def test_every_frame_is_kept_in_order_and_the_last_one_stands_still() -> None:
    data = encode_clip(clip(10), 30, pause_s=0.1)
    assert brightness(data) == [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 9, 9, 9]


@pytest.mark.parametrize(
    ("n_frames", "fps", "pause_s", "n_encoded"),
    [
        (1, 30, 0.0, 1),
        (1, 10, 0.4, 5),
        (15, 10, 0.4, 19),
        (60, 40, 0.4, 76),
        (7, 12.5, 0.4, 12),
        (7, 14, 0.4, 13),
        (3, 0.5, 0.4, 3),
    ],
)
def test_the_number_of_frames_is_exact(n_frames: int, fps: float, pause_s: float, n_encoded: int) -> None:
    info = probe_video(encode_clip([np.zeros((16, 16, 3), np.uint8)] * n_frames, fps, pause_s=pause_s))
    assert info == VideoInfo("h264", "yuv420p", 16, 16, n_encoded, fps, faststart=True)


def test_the_pause_is_short_unless_told_otherwise() -> None:
    assert probe_video(encode_clip(clip(3), 20)).n_frames == 3 + 8  # 0.4 s


@pytest.mark.parametrize("fps", [0.01, 1, 29.97, 30000 / 1001, 125, 1000])
def test_the_speed_is_kept(fps: float) -> None:
    assert probe_video(encode_clip(clip(4), fps, pause_s=0)).fps == pytest.approx(fps, rel=1e-6)


@pytest.mark.parametrize(("height", "width"), [(1, 1), (21, 15), (210, 160), (211, 160), (48, 33)])
def test_odd_sizes_get_a_row_or_column_and_nothing_is_rescaled(height: int, width: int) -> None:
    y, x = height // 4 * 2, width // 4 * 2  # even: colours are stored for 2 x 2 pixels
    frame = np.full((height, width, 3), 128, np.uint8)
    frame[y:, :x] = (220, 40, 30)
    frame[y:, x:] = (30, 60, 200)
    data = encode_clip([frame] * 3, 10)
    info = probe_video(data)
    assert (info.height, info.width) == (height + height % 2, width + width % 2)
    shown = decode(data)[1]
    assert shown.shape == (info.height, info.width, 3)
    error = np.abs(shown[:height, :width].astype(int) - frame).max(axis=2)
    assert np.median(error) <= 6  # of 255
    assert (error > 40).mean() < 0.01  # a rescaled picture is off along its edges
    # what was added looks like its neighbour, not like a black line
    assert np.abs(shown[-1].astype(int) - shown[height - 1]).mean() < 12
    assert np.abs(shown[:, -1].astype(int) - shown[:, width - 1]).mean() < 12


@pytest.mark.parametrize("colour", [(255, 0, 0), (0, 255, 0), (0, 0, 255), (255, 255, 255), (0, 0, 0), (180, 120, 60)])
def test_colours_come_back(colour: tuple[int, int, int]) -> None:
    shown = decode(encode_clip([np.full((32, 32, 3), colour, np.uint8)] * 2, 10))[0]
    assert np.abs(shown.mean(axis=(0, 1)) - colour).max() < 6


def test_the_colours_are_labelled_so_that_browsers_need_not_guess() -> None:
    with av.open(io.BytesIO(encode_clip(clip(2), 10))) as container:
        stream = container.streams.video[0]
        assert (stream.colorspace, stream.color_primaries, stream.color_trc, stream.color_range) == (1, 1, 1, 1)


def test_no_frame_is_shown_out_of_order_and_the_first_one_is_at_0() -> None:
    rng = np.random.default_rng(0)
    moving = [np.roll(rng.integers(0, 256, (48, 64, 3), np.uint8), i, axis=1) for i in range(20)]
    with av.open(io.BytesIO(encode_clip(moving, 20))) as container:
        packets = [packet for packet in container.demux(video=0) if packet.size]
    assert [packet.pts for packet in packets] == [packet.dts for packet in packets]
    assert packets[0].pts == 0
    assert packets[0].is_keyframe


def test_the_index_comes_first() -> None:
    data = encode_clip(clip(5), 10)
    assert 0 < data.find(b"moov") < data.find(b"mdat")
    assert probe_video(data).faststart


def encode_other(codec: str, container_format: str) -> bytes:
    buffer = io.BytesIO()
    with av.open(buffer, "w", format=container_format) as container:
        stream = container.add_stream(codec, rate=25)
        stream.width, stream.height, stream.pix_fmt = 16, 16, "yuv420p"
        for frame in clip(10, 16, 16):
            container.mux(stream.encode(av.VideoFrame.from_ndarray(frame)))
        container.mux(stream.encode())
    return buffer.getvalue()


def test_only_a_few_containers_are_opened() -> None:
    """Some kinds that FFmpeg knows name other files and addresses to be opened."""
    assert probe_video(encode_other("flv", "avi")).codec == "flv1"
    with pytest.raises(DataError, match="not a video that can be decoded"):
        probe_video(encode_other("flv", "flv"))


def test_an_index_at_the_end_is_seen() -> None:
    info = probe_video(encode_other("mpeg4", "mp4"))
    assert (info.faststart, info.codec, info.n_frames) == (False, "mpeg4", 10)
    assert "mpeg4" in str(why_unplayable(info))


def test_equal_frames_give_equal_bytes() -> None:
    assert encode_clip(clip(5), 10) == encode_clip(clip(5), 10)
    assert encode_clip(clip(5), 10) != encode_clip(clip(5)[::-1], 10)


def test_the_frames_are_left_alone() -> None:
    frames = clip(3, 7, 9)
    views = [np.asfortranarray(frame)[::-1] for frame in frames]  # as drawn: upside down, not contiguous
    for view in views:
        view.flags.writeable = False
    assert encode_clip(views, 10) == encode_clip(frames, 10)


@pytest.mark.parametrize(
    ("frames", "words"),
    [
        ([], "at least one frame"),
        ([np.zeros((4, 4, 3), np.uint8), np.zeros((4, 5, 3), np.uint8)], r"frame 1 has shape \(4, 5, 3\)"),
        ([np.zeros((4, 4, 3))], "frame 0 is float64"),
        ([np.zeros((4, 4, 3), np.uint8), np.zeros((4, 4, 3), np.int8)], "frame 1 is int8"),
        ([np.zeros((4, 4, 4), np.uint8)], r"shape \(4, 4, 4\)"),
        ([np.zeros((4, 4), np.uint8)], r"shape \(4, 4\)"),
        ([np.zeros((0, 4, 3), np.uint8)], r"shape \(0, 4, 3\)"),
        ([None], "frame 0 is NoneType"),
    ],
)
def test_what_are_no_pictures_is_refused(frames: list[np.ndarray], words: str) -> None:
    with pytest.raises(DataError, match=words):
        encode_clip(frames, 10)


@pytest.mark.parametrize("fps", [0, -1, float("nan"), float("inf"), 1e-9, 1e6])
def test_a_speed_that_is_none_is_refused(fps: float) -> None:
    with pytest.raises(DataError, match="frames a second"):
        encode_clip(clip(2), fps)


@pytest.mark.parametrize("pause_s", [-0.1, float("nan"), float("inf")])
def test_a_pause_that_is_none_is_refused(pause_s: float) -> None:
    with pytest.raises(DataError, match="pause"):
        encode_clip(clip(2), 10, pause_s=pause_s)


def test_a_video_that_is_cut_off_anywhere_is_refused() -> None:
    data = encode_clip(clip(10), 30)
    assert probe_video(data).n_frames == 22
    with av.open(io.BytesIO(data)) as container:
        packets = [packet.pos for packet in container.demux(video=0) if packet.size]
    moov, mdat = data.find(b"moov") - 4, data.find(b"mdat") - 4
    for end in [0, 1, 8, moov, moov + 8, mdat, mdat + 8, mdat + 9, len(data) - 1, *packets, *range(20, len(data), 97)]:
        with pytest.raises(DataError):
            probe_video(data[:end])


@pytest.mark.parametrize(
    "data", [b"", b"x", b"no video " * 500, bytes(5000), b"#EXTM3U\n#EXTINF:1,\nfile:///etc/hosts\n"]
)
def test_what_is_no_video_is_refused(data: bytes) -> None:
    with pytest.raises(DataError, match="bytes"):
        probe_video(data)


def test_damaged_bytes_never_do_worse_than_an_error() -> None:
    data = encode_clip(clip(5), 10)
    rng = np.random.default_rng(0)
    messages = []
    for _ in range(100):
        damaged = bytearray(data)
        for at in rng.integers(len(data), size=8):
            damaged[at] ^= 1 << rng.integers(8)
        try:
            assert probe_video(bytes(damaged)).n_frames > 0
        except DataError as error:
            messages.append(str(error))
    assert len(messages) > 30
    assert not any("\n" in message or "<none>" in message for message in messages)


@pytest.mark.parametrize("codec", ["h264", "vp8", "vp9", "av1"])
def test_what_browsers_play(codec: str) -> None:
    assert why_unplayable(dataclasses.replace(PLAYS, codec=codec)) is None
    assert why_unplayable(dataclasses.replace(PLAYS, codec=codec, pixel_format="yuvj420p")) is None


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"codec": "mpeg4"}, "the codec mpeg4"),
        ({"codec": "hevc"}, "the codec hevc"),
        ({"pixel_format": "yuv444p"}, "the pixel format yuv444p"),
        ({"width": 63}, "63 x 48"),
        ({"height": 47}, "64 x 47"),
    ],
)
def test_why_browsers_do_not_play_it(change: dict[str, object], words: str) -> None:
    why = why_unplayable(dataclasses.replace(PLAYS, **change))  # type: ignore[arg-type]
    assert why is not None
    assert words in why
    assert why.endswith(".")


def test_a_missing_library_is_named_with_what_to_type(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "av", None)
    for call in (lambda: encode_clip(clip(2), 10), lambda: probe_video(b"x")):
        with pytest.raises(ConfigError, match=r"needs the extra `app`: pip install 'prefrl\[app\]'"):
            call()


def test_the_library_is_imported_only_where_it_is_used() -> None:
    code = "import sys, prefrl.segments.video; sys.exit('av' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
