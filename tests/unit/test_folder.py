"""`prefrl label --clips FOLDER` without its page: what is written, what is not, and what every other verb says."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import sqlalchemy as sa

pytest.importorskip("av", reason="needs the extra `app`")

from prefrl import cli
from prefrl.errors import ConfigError, DataError, StoreError
from prefrl.run import people
from prefrl.run.folder import name_from, open_folder
from prefrl.store import queue
from prefrl.store.clips import load_clip
from prefrl.store.comparisons import active, supersede, tail
from prefrl.store.engine import Database
from prefrl.store.folder import clip_names, stored_clips
from prefrl.store.runs import create_run, list_runs
from prefrl.store.schema import OPEN, query
from prefrl.transfer import export_comparisons
from prefrl.types import Answer, Preference
from tests.clip_files import fill, video

LEFT, RIGHT, TIE = Preference.LEFT, Preference.RIGHT, Preference.TIE


@pytest.fixture
def url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    found = f"sqlite:///{tmp_path}/runs/clips.db"
    monkeypatch.setenv("PREFRL_DB", found)
    monkeypatch.setenv("COLUMNS", "200")
    return found


@pytest.fixture
def cats(tmp_path: Path) -> Path:
    return fill(tmp_path / "cats", 4, "cat")


@pytest.fixture
def prefrl(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """The command line, with a page that ends at once; exit code, output, errors."""
    monkeypatch.setattr(people, "serve_page", lambda *args: None)

    def call(*words: object) -> tuple[int, str, str]:
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            cli.main([str(word) for word in words])
        said = capsys.readouterr()
        return int(ended.value.code or 0), said.out, said.err

    return call


@pytest.fixture
def db(url: str, cats: Path) -> Iterator[Database]:
    """With a run of four clips."""
    open_folder(url, cats)
    with Database.open(url) as database:
        yield database


def pairs(db: Database, run_id: int = 1) -> list[frozenset[str]]:
    """Open pairs by the names of their files, in the order in which they are asked."""
    names = clip_names(db, run_id)
    with db.read() as connection:
        rows = connection.execute(sa.select(query).where(query.c.run_id == run_id, OPEN).order_by(query.c.id)).all()
    return [frozenset((names[row.segment_1], names[row.segment_2])) for row in rows]


def say(db: Database, n: int, judge: Callable[[str, str], Preference], who: str = "ann", run_id: int = 1) -> None:
    """Answers the next pairs, given the names of the left and of the right file."""
    names = clip_names(db, run_id)
    leases = queue.lease(db, run_id, who, n=n, clips=True)
    assert len(leases) == n
    for one in leases:
        shown = (one.segment_1, one.segment_2) if one.shown_left == 1 else (one.segment_2, one.segment_1)
        said = judge(*(names[id_] for id_ in shown))
        queue.answer(db, [Answer(one.query_id, one.token, said, who, f"{one.token}-uuid", 900)])


def by_name(left: str, right: str) -> Preference:
    return LEFT if left < right else RIGHT


def test_a_folder_becomes_a_run_and_the_page_is_opened(
    prefrl: Callable[..., tuple[int, str, str]], url: str, cats: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    served: list[object] = []
    monkeypatch.setattr(people, "serve_page", lambda *args: served.append(args[:2]))
    (cats / "notes.txt").write_text("x")
    (cats / "empty.mp4").write_bytes(b"")
    code, out, err = prefrl("label", "--clips", cats, "--no-browser")
    assert code == 0
    assert served == [(url, "cats")]
    assert "prefrl export cats FILE.csv" in out
    assert err.splitlines() == [
        "prefrl: left out: empty.mp4: 0 bytes",
        "prefrl: not looked at, for they are no videos: 'notes.txt'",
        "prefrl: run cats: 4 clips, 0 of 6 comparisons",
    ]
    with Database.open(url) as db:
        (run,) = list_runs(db)
        assert (run.config["env"]["id"], run.config["env"]["kwargs"]) == (
            "clips",
            {"folder": str(cats), "labels": None},
        )
        assert run.config["label"]["budget"] == 6
        for one in stored_clips(db, run.id):
            assert load_clip(db, one.id) == (cats / one.name).read_bytes()
        assert len(set(pairs(db))) == len(pairs(db)) == 6


def test_a_run_by_its_name_is_still_opened(db: Database, prefrl: Callable[..., tuple[int, str, str]]) -> None:
    assert prefrl("label", "cats", "--no-browser")[0::2] == (0, "")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ([], "neither a run nor a folder was given"),
        (["cats", "--clips", "FOLDER"], "both the run 'cats' and --clips"),
        (["cats", "--labels", "9"], "`prefrl resume cats --labels 9` for a run that trains"),
        (["cats", "--name", "dogs"], "--name dogs is for the videos of a folder"),
        (["--clips", "nowhere"], "name a folder that holds videos"),
        (["--clips", "FOLDER", "--labels", "0"], "--labels must be at least 1"),
        (["--clips", "FOLDER", "--name", "../x"], "cannot be the name of a run"),
        (["--clips", "ONE"], "holds 1 clip that browsers play: at least 2 are needed"),
        (["--clips", "NONE"], "holds no clips that browsers play"),
    ],
)
def test_what_cannot_work_is_one_line_and_nothing_is_written(
    prefrl: Callable[..., tuple[int, str, str]], tmp_path: Path, cats: Path, url: str, words: list[str], told: str
) -> None:
    one = fill(tmp_path / "one", 1)
    (one / "bad.mp4").write_bytes(b"no video")
    (tmp_path / "none").mkdir()
    places = {"FOLDER": cats, "ONE": one, "NONE": tmp_path / "none"}
    code, out, err = prefrl("label", *(places.get(word, word) for word in words))
    assert code == 2
    assert not out
    *left_out, last = err.splitlines()
    assert last.startswith("prefrl: ")
    assert told in last
    assert all(line.startswith("prefrl: left out: bad.mp4: ") for line in left_out)
    assert not (tmp_path / "runs").exists()


def test_the_same_pairs_for_a_seed(tmp_path: Path, cats: Path) -> None:
    found = []
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        where = f"sqlite:///{tmp_path}/{name}.db"
        open_folder(where, cats, labels=5, seed=seed)
        with Database.open(where) as database:
            found.append(pairs(database))
    assert found[0] == found[1] != found[2]


def test_opened_again_it_goes_on(url: str, cats: Path, db: Database) -> None:
    say(db, 2, by_name)
    before, waiting = active(tail(db, 1)), pairs(db)
    run = open_folder(url, cats)
    assert (run.id, run.name) == (1, "cats")
    assert pairs(db) == waiting
    assert active(tail(db, 1)) == before
    assert len(stored_clips(db, 1)) == 4


def test_a_new_file_is_asked_about_and_answers_stay(url: str, cats: Path, db: Database) -> None:
    say(db, 2, by_name)
    fill(cats, 1, "new")
    (cats / "new-00.mp4").write_bytes(video(222))
    lines: list[str] = []
    run = open_folder(url, cats, tell=lines.append)
    assert lines == ["run cats: 5 clips (1 new), 2 of 10 comparisons"]
    assert run.config["label"]["budget"] == 10  # all pairs, as before
    assert len(tail(db, 1)) == 2
    assert len(pairs(db)) == len(set(pairs(db))) == 8
    assert "new-00.mp4" in pairs(db)[0]


def test_a_budget_that_was_asked_for_is_kept_until_another_is(url: str, cats: Path, tmp_path: Path) -> None:
    def opened(labels: int | None = None) -> tuple[int, int]:
        run = open_folder(url, cats, labels=labels)
        with Database.open(url) as db:
            return run.config["label"]["budget"], len(pairs(db))

    assert opened(3) == (3, 3)
    fill(cats, 6, "cat")
    assert opened() == (3, 3)
    assert opened(9) == (9, 9)
    assert opened(2) == (2, 2)
    lines: list[str] = []
    open_folder(url, cats, labels=1000, tell=lines.append)
    assert lines[0] == "--labels 1000: 6 clips have 15 pairs, and no pair is asked twice"
    assert opened() == (15, 15)
    fill(cats, 7, "cat")
    assert opened() == (21, 21)


def test_a_file_that_has_changed_is_another_clip(url: str, cats: Path, db: Database) -> None:
    say(db, 6, by_name)
    old = next(one for one in stored_clips(db, 1) if one.name == "cat-00.mp4")
    (cats / "cat-00.mp4").write_bytes(video(200))
    open_folder(url, cats)
    new = stored_clips(db, 1)[-1]
    assert (new.name, new.digest == old.digest) == ("cat-00.mp4", False)
    names = clip_names(db, 1)
    assert names[new.id] == f"cat-00.mp4 ({new.digest[:6]})" != names[old.id]
    assert len(active(tail(db, 1))) == 6  # the old one's three are still there
    assert load_clip(db, old.id) == video(0)
    asked = pairs(db)
    assert asked == [pair for pair in asked if names[new.id] in pair]  # and the others know each other already
    assert len(asked) == 3


def test_answers_about_a_file_that_is_gone_stay_and_leave_room_for_others(url: str, cats: Path, db: Database) -> None:
    say(db, 6, by_name)
    (cats / "cat-03.mp4").unlink()
    assert open_folder(url, cats).config["label"]["budget"] == 6
    assert pairs(db) == []
    (cats / "new.mp4").write_bytes(video(200))
    lines: list[str] = []
    assert open_folder(url, cats, tell=lines.append).config["label"]["budget"] == 9
    assert lines == ["run cats: 4 clips (1 new), 6 of 9 comparisons"]
    assert sorted(map(sorted, pairs(db))) == [[f"cat-0{i}.mp4", "new.mp4"] for i in range(3)]
    assert len(active(tail(db, 1))) == 6


def test_a_renamed_file_is_the_same_clip(url: str, cats: Path, db: Database) -> None:
    (cats / "cat-00.mp4").rename(cats / "tom.mp4")
    lines: list[str] = []
    open_folder(url, cats, tell=lines.append)
    assert lines[0] == "tom.mp4 is the clip that was cat-00.mp4: its answers stay"
    assert sorted(clip_names(db, 1).values()) == ["cat-01.mp4", "cat-02.mp4", "cat-03.mp4", "tom.mp4"]


def test_names_of_runs(url: str, cats: Path, tmp_path: Path) -> None:
    elsewhere, lines = fill(tmp_path / "other" / "cats", 2, "dog"), []
    assert open_folder(url, cats).name == "cats"
    assert open_folder(url, elsewhere, tell=lines.append).name == "cats-2"
    assert lines[0] == "there is another run 'cats' already: this one is 'cats-2' (--name gives another name)"
    assert open_folder(url, elsewhere).name == "cats-2"
    assert open_folder(url, cats, "second look").name == "second look"
    with Database.open(url) as db:
        create_run(db, "trains", {}, {})
        assert len(list_runs(db)) == 4
    with pytest.raises(ConfigError, match="'trains' is no folder of clips"):
        open_folder(url, cats, "trains")
    moved = cats.rename(tmp_path / "moved")
    assert open_folder(url, moved, "cats").config["env"]["kwargs"]["folder"] == str(moved)
    with pytest.raises(StoreError, match="cannot be the name"):
        open_folder(url, moved, "a/b")


@pytest.mark.parametrize(
    ("folder", "name"),
    [
        ("cats", "cats"),
        (".hidden", "hidden"),
        ("a&b", "a-b"),
        ("a..b", "a.b"),
        ("고양이 2", "고양이 2"),
        ("", "clips"),
        ("-", "clips"),
    ],
)
def test_a_folders_name_as_a_runs(folder: str, name: str) -> None:
    assert name_from(folder) == name


def test_files_that_vanish_while_they_are_stored_leave_a_run_that_can_be_finished(
    url: str, cats: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from prefrl.run import folder

    def look_and_lose(path: Path) -> object:
        found = real(path)
        (path / "cat-02.mp4").unlink()
        return found

    real = folder.look
    monkeypatch.setattr(folder, "look", look_and_lose)
    with pytest.raises(DataError, match="cannot be read"):
        open_folder(url, cats)
    monkeypatch.setattr(folder, "look", real)
    run = open_folder(url, cats)
    with Database.open(url) as db:
        assert (run.name, len(stored_clips(db, run.id)), len(pairs(db))) == ("cats", 3, 3)


@pytest.mark.parametrize(
    "words",
    [
        ["resume", "cats"],
        ["resume", "cats", "--human"],
        ["eval", "cats"],
        ["eval", "cats", "--list"],
        ["worker", "cats", "--role", "renderer"],
        ["worker", "cats", "--role", "rollout"],
        ["import", "cats", "x.jsonl"],
    ],
    ids=" ".join,
)
def test_verbs_for_training_say_that_it_is_a_folder_of_clips(
    db: Database, cats: Path, prefrl: Callable[..., tuple[int, str, str]], words: list[str]
) -> None:
    code, out, err = prefrl(*words)
    assert (code, out) == (2, "")
    (line,) = err.splitlines()
    assert line.startswith("prefrl: run 'cats' is a folder of clips")
    assert f"`prefrl label --clips {cats} --name cats`" in line
    assert len(stored_clips(db, 1)) == 4


def test_no_run_that_trains_can_be_taken_for_one(prefrl: Callable[..., tuple[int, str, str]], url: str) -> None:
    code, _, err = prefrl("run", "clips")
    assert code == 2
    assert "`prefrl label --clips FOLDER` compares them" in err


def test_status_shows_how_far_it_is_and_the_ranking(db: Database, prefrl: Callable[..., tuple[int, str, str]]) -> None:
    assert prefrl("status") == (0, "cats (clips): 0 of 6 comparisons\n", "")
    say(db, 6, by_name)
    code, out, _ = prefrl("status", "cats")
    assert code == 0
    assert "cats: a folder of clips" in out
    assert "6 of 6" in out
    assert "steps" not in out
    assert [line.split()[:2] for line in out.splitlines()[-4:]] == [[str(i + 1), f"cat-0{i}.mp4"] for i in range(4)]
    told = json.loads(prefrl("status", "cats", "--json")[1])
    assert [(one["name"], one["won"], one["lost"]) for one in told["ranking"]] == [
        (f"cat-0{i}.mp4", 3 - i, i) for i in range(4)
    ]
    assert (told["learner"], told["total_steps"], told["comparisons"]) == ("", 0, 6)


def test_the_report_has_the_ranking_and_nothing_about_training(
    db: Database, prefrl: Callable[..., tuple[int, str, str]], tmp_path: Path
) -> None:
    out = tmp_path / "report.html"
    assert prefrl("report", "cats", "--out", out)[0] == 0
    assert "Nobody has compared any yet." in out.read_text()
    say(db, 6, by_name)
    assert prefrl("report", "cats", "--out", out)[0] == 0
    text = out.read_text()
    assert text.index("cat-00.mp4") < text.index("cat-03.mp4")
    for word in ("agent steps", "reward version", "policy", "Checkpoints"):
        assert word not in text, word


def rows_of(db: Database, file: Path) -> list[dict[str, object]]:
    n = export_comparisons(db, "cats", file)
    if file.suffix == ".csv":
        rows: list[dict[str, object]] = list(
            csv.DictReader(io.StringIO(file.read_bytes().decode("utf-8-sig"), newline=""))
        )
    elif file.suffix == ".jsonl":
        rows = [json.loads(line) for line in file.read_text().splitlines()]
    else:
        rows = pq.read_table(file).to_pylist()
    assert len(rows) == n
    return rows


@pytest.mark.parametrize("suffix", [".csv", ".jsonl", ".parquet"])
def test_export_names_the_files_and_who_was_where(url: str, cats: Path, tmp_path: Path, suffix: str) -> None:
    (cats / "cat-03.mp4").rename(cats / "=cmd|'calc'!A0.mp4")
    open_folder(url, cats)
    shown: list[tuple[str, str]] = []

    def judge(left: str, right: str) -> Preference:
        shown.append((left, right))
        return (LEFT, RIGHT, TIE, LEFT, RIGHT, LEFT)[len(shown) - 1]

    with Database.open(url) as db:
        say(db, 6, judge)
        supersede(db, 1, 6, Preference.WITHDRAWN, "ann", "undo")
        rows, digests = rows_of(db, tmp_path / f"a{suffix}"), {n.name: n.digest for n in stored_clips(db, 1)}
        assert rows_of(db, tmp_path / f"b{suffix}") == rows
    assert (tmp_path / f"a{suffix}").read_bytes() == (tmp_path / f"b{suffix}").read_bytes()

    def plain(name: object) -> object:
        return name.removeprefix("'") if suffix == ".csv" and isinstance(name, str) else name

    assert [(plain(row["left"]), plain(row["right"])) for row in rows] == shown[:5]  # what was taken back is not there
    assert [row["preference"] for row in rows] == ["left", "right", "tie", "left", "right"]
    nothing = "" if suffix == ".csv" else None
    wanted = [shown[0][0], shown[1][1], nothing, shown[3][0], shown[4][1]]
    assert [plain(row["preferred"]) for row in rows] == wanted
    assert [row["sha256_left"] for row in rows] == [digests[left] for left, _ in shown[:5]]
    assert {(row["annotator"], str(row["response_ms"])) for row in rows} == {("ann", "900")}
    assert all(str(row["created"]).endswith("Z") for row in rows)
    if suffix == ".csv":
        named = [str(row[side]) for row in rows for side in ("left", "right") if "cmd" in str(row[side])]
        assert named
        assert all(name.startswith("'=") for name in named)
