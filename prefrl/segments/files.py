"""A folder of videos: which of them every browser plays, and why the others are left out."""

from __future__ import annotations

import os
import stat
import unicodedata
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from prefrl.errors import DataError
from prefrl.segments.video import VideoInfo, probe_video, why_unplayable

SUFFIXES = (".mp4", ".m4v", ".webm", ".mov", ".mkv", ".avi", ".gif", ".mpg", ".mpeg", ".wmv", ".flv", ".ogv", ".ts")
MAX_BYTES = 20_000_000  # of one clip: a page holds six at a time, and the database all of them
CODECS = {"mp4": ("h264", "vp9", "av1"), "webm": ("vp8", "vp9", "av1")}  # what browsers play in each container


@dataclass(frozen=True)
class VideoFile:
    """A video that browsers play.

    Attributes:
        digest: sha256 of the file's bytes.
    """

    path: Path
    digest: str
    info: VideoInfo

    @property
    def name(self) -> str:
        """The file's name, without its folder."""
        return self.path.name

    def read(self) -> bytes:
        """The file's bytes.

        Raises:
            DataError: It has changed since it was looked at, or is gone.
        """
        video = _read(self.path)
        if sha256(video).hexdigest() != self.digest:
            raise DataError(f"{self.path} has changed while it was read: type the command once more")
        return video


@dataclass(frozen=True)
class Folder:
    """What was found in a folder.

    Attributes:
        path: Absolute, links followed.
        videos: In the order of their names.
        left_out: Name and reason of each video that cannot be shown.
        ignored: Names of files of other kinds, and of folders inside, which are not looked into.
    """

    path: Path
    videos: tuple[VideoFile, ...]
    left_out: tuple[tuple[str, str], ...]
    ignored: tuple[str, ...]


def look(folder: Path) -> Folder:
    """Tries out every video of a folder; nothing is written, and nothing outside the folder is read.

    Raises:
        ConfigError: PyAV is not installed.
        DataError: There is no such folder, it cannot be read, or its name is no text.
    """
    path = folder.resolve()
    if why := _bad_name(str(path)):
        raise DataError(f"--clips {str(path)!r}: {why}: give the folder another name")
    try:
        names = sorted(os.listdir(path))
    except OSError as error:
        raise DataError(f"--clips {folder}: {error.strerror or error}: name a folder that holds videos") from error
    videos: dict[str, VideoFile] = {}
    left_out: list[tuple[str, str]] = []
    wanted = [
        name
        for name in names
        if Path(name).suffix.lower() in SUFFIXES and name[0] != "." and not (path / name).is_dir()
    ]
    for name in wanted:
        try:
            video = _video(path, name)
            if (twin := videos.get(video.digest)) is not None:
                raise DataError(f"the same content as {twin.name}")
            videos[video.digest] = video
        except DataError as error:
            left_out.append((name, str(error)))
    return Folder(path, tuple(videos.values()), tuple(left_out), tuple(sorted({*names} - {*wanted})))


def _video(folder: Path, name: str) -> VideoFile:
    """A file that plays.

    Raises:
        DataError: Why not.
    """
    if why := _bad_name(name):
        raise DataError(f"{why}: rename it")
    path = folder / name
    try:
        real = path.resolve(strict=True)
        if not real.is_relative_to(folder):
            raise DataError("a link that leads out of the folder: copy the file itself")
        status = real.stat()
    except (OSError, RuntimeError) as error:  # a circle of links is a RuntimeError in older Pythons
        raise DataError(f"cannot be read ({getattr(error, 'strerror', None) or error})") from error
    if not stat.S_ISREG(status.st_mode):
        raise DataError("not a regular file")
    if status.st_size == 0:
        raise DataError("0 bytes")
    if status.st_size > MAX_BYTES:
        raise DataError(f"{status.st_size / 1e6:,.1f} MB: a clip has at most {MAX_BYTES / 1e6:g} MB; cut it shorter")
    data = _read(path)
    info = probe_video(data)
    if why := why_unplayable(info) or _why_not_in(info):
        raise DataError(why)
    return VideoFile(path, sha256(data).hexdigest(), info)


def _why_not_in(info: VideoInfo) -> str | None:
    codecs = CODECS.get(info.container)
    if codecs is None:
        return f"Browsers do not play the container {info.container}, only {' and '.join(CODECS)}."
    if info.codec not in codecs:
        return f"Browsers do not play {info.codec} in {info.container}, only {', '.join(codecs)}."
    return None


def _bad_name(name: str) -> str | None:
    """Why a name can be neither stored nor shown in one line, or None."""
    bad = [c for c in name if unicodedata.category(c) in ("Cc", "Cs", "Zl", "Zp")]
    return f"its name holds {bad[0]!r}, which is no letter" if bad else None


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)  # it may grow
    except OSError as error:
        raise DataError(f"cannot be read ({error.strerror or error})") from error
    if len(data) > MAX_BYTES:
        raise DataError(f"a clip has at most {MAX_BYTES / 1e6:g} MB; cut it shorter")
    return data
