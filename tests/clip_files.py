"""Small real videos, as people have them in their folders."""

from __future__ import annotations

import functools
import io
from pathlib import Path
from typing import Any

import av
import numpy as np


@functools.cache
def video(
    shade: int = 60,
    codec: str = "libx264",
    container: str = "mp4",
    *,
    width: int = 64,
    height: int = 48,
    pixels: str = "yuv420p",
    n_frames: int = 12,
    movflags: str = "",
) -> bytes:
    """A bar that moves over noise; ``shade`` makes videos different. The index of an mp4 comes last by default."""
    out, rng = io.BytesIO(), np.random.default_rng(shade)

    def reopen(url: str, flags: int, options: dict[str, str]) -> io.BytesIO:
        return io.BytesIO(out.getvalue())

    options: Any = {"options": {"movflags": movflags}, "io_open": reopen} if movflags else {}
    with av.open(out, "w", format=container, **options) as file:
        stream = file.add_stream(codec, rate=20)
        stream.width, stream.height, stream.pix_fmt = width, height, pixels
        for i in range(n_frames):
            picture = rng.integers(0, 256, (height, width, 3)).astype(np.uint8)
            picture[:, 2 * i : 2 * i + 12] = shade
            file.mux(stream.encode(av.VideoFrame.from_ndarray(picture, format="rgb24")))
        file.mux(stream.encode())
    return out.getvalue()


def trimmed(data: bytes, n: int) -> bytes:
    """The same without its first ``n`` pictures, which an edit list hides, as cutters do that encode nothing anew."""
    out = io.BytesIO()
    options = {"avoid_negative_ts": "disabled"}
    with av.open(io.BytesIO(data)) as source, av.open(out, "w", format="mp4", options=options) as file:
        stream = source.streams.video[0]
        copy = file.add_stream_from_template(stream)
        assert stream.average_rate is not None
        assert stream.time_base is not None
        shift = int(n / stream.average_rate / stream.time_base)
        for packet in source.demux(stream):
            if packet.dts is not None and packet.pts is not None:
                packet.pts, packet.dts, packet.stream = packet.pts - shift, packet.dts - shift, copy
                file.mux(packet)
    return out.getvalue()


def encodes(codec: str) -> bool:
    """Whether this PyAV has an encoder."""
    try:
        av.codec.Codec(codec, "w")
    except av.codec.codec.UnknownCodecError:
        return False
    return True


def fill(folder: Path, n: int, prefix: str = "clip") -> Path:
    """``n`` different good clips in a folder, which is made."""
    folder.mkdir(parents=True, exist_ok=True)
    for i in range(n):
        (folder / f"{prefix}-{i:02d}.mp4").write_bytes(video(10 * i))
    return folder
