"""Which videos of a folder are taken, and the reason for each that is not."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

pytest.importorskip("av", reason="needs the extra `app`")

from prefrl.errors import DataError
from prefrl.segments import files
from prefrl.segments.files import look
from prefrl.segments.video import media_type, probe_video
from tests.clip_files import encodes, fill, trimmed, video


def reasons(folder: Path) -> dict[str, str]:
    return dict(look(folder).left_out)


def names(folder: Path) -> list[str]:
    return [one.name for one in look(folder).videos]


def test_what_browsers_play_is_taken_in_the_order_of_names(tmp_path: Path) -> None:
    (tmp_path / "c late.mp4").write_bytes(video(1))
    (tmp_path / "a first.MP4").write_bytes(video(2, movflags="+faststart"))
    (tmp_path / "b.webm").write_bytes(video(3, "libvpx-vp9", "webm"))
    (tmp_path / "d.webm").write_bytes(video(4, "libvpx", "webm"))
    (tmp_path / "고양이.mp4").write_bytes(video(5))
    found = look(tmp_path)
    assert [one.name for one in found.videos] == ["a first.MP4", "b.webm", "c late.mp4", "d.webm", "고양이.mp4"]
    assert [one.info.faststart for one in found.videos] == [True, False, False, False, False]
    assert [one.info.n_frames for one in found.videos] == [12] * 5
    assert [media_type(one.read())[6:] for one in found.videos] == ["mp4", "webm", "mp4", "webm", "mp4"]
    assert found.left_out == ()


def test_each_that_cannot_be_shown_is_named_with_its_reason(tmp_path: Path) -> None:
    good = video(1, movflags="+faststart")
    broken = bytearray(good)
    begin, size = broken.find(b"mdat") + len(good) // 3, len(good) // 3
    broken[begin : begin + size] = b"\x55" * size
    webm = video(1, "libvpx-vp9", "webm")
    wanted = {
        "broken.mp4": (bytes(broken), "decoded"),
        "cut.mp4": (good[: len(good) * 2 // 3], "not a video that can be decoded"),
        "cut-late-index.mp4": (video(1)[:-40], "is cut off after"),
        "cut-no-index.mp4": (video(1)[:-4000], "not a video that can be decoded"),
        "cut.webm": (webm[: len(webm) * 2 // 3], "is cut off after"),
        "deep.mp4": (video(1, pixels="yuv420p10le"), "pixel format yuv420p10le"),
        "empty.mp4": (b"", "^0 bytes$"),
        "full-colour.mp4": (video(1, pixels="yuv444p"), "pixel format yuv444p"),
        "in-avi.avi": (video(1, container="avi"), "container avi, only mp4 and webm"),
        "in-mkv.mkv": (video(1, container="matroska"), "container matroska"),
        "in-mov.mov": (video(1, container="mov"), "container mov"),
        "mp4v.mp4": (video(1, "mpeg4"), "codec mpeg4"),
        "odd.webm": (video(1, "libvpx-vp9", "webm", width=63, height=47), "size 63 x 47"),
        "text.mp4": (b"not a video at all", "not a video that can be decoded"),
        "vp8-in-mp4.mp4": (video(1, "libvpx", "matroska"), "container matroska"),
    }
    if encodes("libx265"):
        wanted["hevc.mp4"] = (video(1, "libx265"), "codec hevc")
    for name, (data, _) in wanted.items():
        (tmp_path / name).write_bytes(data)
    found = reasons(tmp_path)
    assert found.keys() == wanted.keys()
    for name, (_, words) in wanted.items():
        with pytest.raises(DataError, match=words):
            raise DataError(found[name])
        assert "\n" not in found[name]
    assert names(tmp_path) == []


def test_a_video_that_was_trimmed_without_being_encoded_anew_is_whole(tmp_path: Path) -> None:
    cut = trimmed(video(1, n_frames=40), 15)
    assert probe_video(cut).n_frames == 40  # also those that it no longer shows
    (tmp_path / "a.mp4").write_bytes(cut)
    assert names(tmp_path) == ["a.mp4"]


def test_other_files_are_counted_and_nothing_below_is_looked_into(tmp_path: Path) -> None:
    fill(tmp_path / "inside", 2)
    fill(tmp_path / "folder.mp4", 1)
    (tmp_path / "notes.txt").write_text("x")
    (tmp_path / ".hidden.mp4").write_text("x")
    (tmp_path / "a.mp4").write_bytes(video(1))
    found = look(tmp_path)
    assert ([one.name for one in found.videos], found.left_out, found.ignored) == (
        ["a.mp4"],
        (),
        (".hidden.mp4", "folder.mp4", "inside", "notes.txt"),
    )


def test_the_same_content_counts_once(tmp_path: Path) -> None:
    for name in ("a.mp4", "b.mp4"):
        (tmp_path / name).write_bytes(video(1))
    assert names(tmp_path) == ["a.mp4"]
    assert reasons(tmp_path) == {"b.mp4": "the same content as a.mp4"}


def test_links_and_things_that_are_no_files(tmp_path: Path) -> None:
    outside = fill(tmp_path / "outside", 1) / "clip-00.mp4"
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "real.mp4").write_bytes(video(99))
    (folder / "out.mp4").symlink_to(outside)
    (folder / "up.mp4").symlink_to("../outside/clip-00.mp4")
    (folder / "nowhere.mp4").symlink_to("gone.mp4")
    (folder / "circle.mp4").symlink_to("circle.mp4")
    os.mkfifo(folder / "pipe.mp4")  # to read it would wait for ever
    found = reasons(folder)
    assert found.keys() == {"out.mp4", "up.mp4", "nowhere.mp4", "circle.mp4", "pipe.mp4"}
    assert found["out.mp4"] == found["up.mp4"] == "a link that leads out of the folder: copy the file itself"
    assert found["pipe.mp4"] == "not a regular file"
    assert names(folder) == ["real.mp4"]
    (tmp_path / "link").symlink_to(folder)  # the folder itself may be one
    assert names(tmp_path / "link") == ["real.mp4"]
    assert look(tmp_path / "link").path == folder


def test_a_large_one_is_not_even_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with (tmp_path / "large.mp4").open("wb") as file:
        file.truncate(files.MAX_BYTES + 1)
    monkeypatch.setattr(files, "_read", lambda path: pytest.fail("it was read"))
    assert reasons(tmp_path) == {"large.mp4": "20.0 MB: a clip has at most 20 MB; cut it shorter"}


def test_names_that_cannot_be_stored_or_shown(tmp_path: Path) -> None:
    for name in (b"line\nbreak.mp4", b"\xff\xfe.mp4", b"\x1b[31mred.mp4"):
        (tmp_path / os.fsdecode(name)).write_bytes(video(1))
    assert [why.partition(", ")[2] for why in reasons(tmp_path).values()] == ["which is no letter: rename it"] * 3
    assert names(tmp_path) == []


def test_a_file_that_changes_while_it_is_read_is_not_stored_under_a_wrong_digest(tmp_path: Path) -> None:
    (tmp_path / "a.mp4").write_bytes(video(1))
    (one,) = look(tmp_path).videos
    assert one.read() == video(1)
    (tmp_path / "a.mp4").write_bytes(video(2))
    with pytest.raises(DataError, match="has changed while it was read"):
        one.read()


@pytest.mark.parametrize("what", ["gone", "file.mp4"])
def test_a_folder_that_is_none(tmp_path: Path, what: str) -> None:
    (tmp_path / "file.mp4").write_bytes(video(1))
    with pytest.raises(DataError, match=rf"--clips .*{what}: .*: name a folder that holds videos"):
        look(tmp_path / what)
