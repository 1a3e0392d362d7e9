"""Export and import: what comes back is what went out, and a bad file changes nothing."""

from __future__ import annotations

import json
import logging
import os
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from prefrl.errors import DataError, StoreError
from prefrl.segments.frames import to_stacks
from prefrl.store.comparisons import NewComparison, active, add_comparisons, supersede, tail
from prefrl.store.engine import Database
from prefrl.store.runs import create_run, get_run
from prefrl.store.schema import metadata
from prefrl.store.segments import add_segments, load_segments, true_returns
from prefrl.transfer import export_comparisons, import_comparisons
from prefrl.transfer.exporting import replacing
from prefrl.types import Preference, Segment

T, OBS, ACT = 4, 3, 2
FORMATS = pytest.mark.parametrize("suffix", [".parquet", ".jsonl"])
BOX = {"obs_shape": [OBS], "act_shape": [ACT], "n_actions": None}
DISCRETE = {"obs_shape": [OBS], "act_shape": [], "n_actions": 3}


def new_run(db: Database, name: str = "hopper", spaces: dict[str, Any] = BOX, env_id: str = "hopper") -> int:
    return create_run(db, name, {"env": {"id": env_id, "segment_steps": T}}, {"spaces": spaces}).id


def make_segment(number: int, *, discrete: bool = False, states: bool = True) -> Segment:
    rng = np.random.default_rng(number)
    act = rng.integers(3, size=T) if discrete else rng.normal(size=(T, ACT)).astype(np.float32)
    return Segment(
        rng.normal(size=(T, OBS)),
        act,
        rng.normal(size=(T, 5)) if states else None,
        env_index=number % 2,
        episode=number,
        start=3 * number,
        env_steps=100 + number,
        source="initial" if number < 2 else "policy",
    )


def fill(db: Database, run_id: int, *, discrete: bool = False) -> list[int]:
    some = [make_segment(n, discrete=discrete, states=n != 1) for n in range(6)]
    ids = add_segments(db, run_id, some, [np.full(T, 7777.125 + n) for n in range(6)])
    words = [Preference.LEFT, Preference.RIGHT, Preference.TIE, Preference.INCOMPARABLE, Preference.LEFT]
    rows = [
        NewComparison(ids[n], ids[n + 1], word, f"Zoë {n}", f"uuid-{n}", 1 + n % 2, {"z": n, "a": [None]}, 10**12 + n)
        for n, word in enumerate(words)
    ]
    add_comparisons(db, run_id, rows)
    return ids


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database with a run and nothing else, to be copied: making the tables takes longer than most tests."""
    file = tmp_path_factory.mktemp("empty") / "a.db"
    with Database.create(f"sqlite:///{file}") as database:
        new_run(database)
    return file


@pytest.fixture
def db(empty: Path, tmp_path: Path) -> Iterator[Database]:
    shutil.copy(empty, tmp_path / "a.db")
    with Database.open(f"sqlite:///{tmp_path}/a.db") as database:
        yield database


@pytest.fixture
def other(empty: Path, tmp_path: Path) -> Iterator[Database]:
    shutil.copy(empty, tmp_path / "b.db")
    with Database.open(f"sqlite:///{tmp_path}/b.db") as database:
        yield database


def dump(db: Database) -> dict[str, list[Any]]:
    with db.read() as connection:
        return {t.name: sorted(map(repr, connection.execute(t.select()))) for t in metadata.sorted_tables}


def foreign(**changes: Any) -> dict[str, Any]:
    """A row with nothing but what is needed; None takes a column out."""
    rng = np.random.default_rng(1)
    row: dict[str, Any] = {"preference": "left"}
    for side in (1, 2):
        row[f"segment_{side}_obs"] = rng.normal(size=(T, OBS)).tolist()
        row[f"segment_{side}_act"] = rng.normal(size=(T, ACT)).tolist()
    return {name: value for name, value in (row | changes).items() if value is not None}


def write(file: Path, *rows: dict[str, Any]) -> Path:
    if file.suffix == ".jsonl":
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    else:
        pq.write_table(pa.Table.from_pylist(list(rows)), file)
    return file


def comparisons(db: Database, name: str = "hopper") -> list[Any]:
    return active(tail(db, get_run(db, name).id))


def mus(db: Database) -> list[float | None]:
    return [row.mu for row in comparisons(db)]


@FORMATS
def test_round_trip(db: Database, other: Database, tmp_path: Path, suffix: str) -> None:
    fill(db, 1)
    with db.write() as connection:  # what only answers through leases have
        connection.exec_driver_sql("UPDATE comparison SET response_ms = 1234 WHERE seq = 2")
    file, again = tmp_path / f"a{suffix}", tmp_path / f"b{suffix}"
    assert export_comparisons(db, "hopper", file) == 5
    assert import_comparisons(other, "hopper", file, dry_run=True) == 5
    assert not tail(other, 1)
    assert import_comparisons(other, "hopper", file) == 5
    assert export_comparisons(other, "hopper", again) == 5
    assert again.read_bytes() == file.read_bytes()

    here, there = comparisons(db), comparisons(other)
    for name in ("seq", "uuid", "preference", "mu", "shown_left", "annotator", "response_ms", "detail", "created_ms"):
        assert [getattr(row, name) for row in here] == [getattr(row, name) for row in there]
    assert [row.response_ms for row in there] == [None, 1234, None, None, None]
    old = load_segments(db, [i for row in here for i in (row.segment_1, row.segment_2)], with_states=True)
    new = load_segments(other, [i for row in there for i in (row.segment_1, row.segment_2)], with_states=True)
    assert len(new) == 6
    for a, b in zip(here, there, strict=True):
        for side in ("segment_1", "segment_2"):
            one, two = old[getattr(a, side)], new[getattr(b, side)]
            assert one.digest == two.digest
            assert (f"import:{one.source}", one.episode, one.env_steps) == (two.source, two.episode, two.env_steps)
            assert one.states is two.states is None or np.array_equal(one.states, two.states)
    assert true_returns(other, new) == {}  # no true reward travels


@FORMATS
def test_formats_can_be_mixed(db: Database, other: Database, tmp_path: Path, suffix: str) -> None:
    fill(db, 1)
    back = {".parquet": ".jsonl", ".jsonl": ".parquet"}[suffix]
    export_comparisons(db, "hopper", tmp_path / f"a{suffix}")
    import_comparisons(other, "hopper", tmp_path / f"a{suffix}")
    export_comparisons(other, "hopper", tmp_path / f"b{back}")
    export_comparisons(db, "hopper", tmp_path / f"a{back}")
    assert (tmp_path / f"a{back}").read_bytes() == (tmp_path / f"b{back}").read_bytes()


@FORMATS
def test_an_empty_run_round_trips(db: Database, other: Database, tmp_path: Path, suffix: str) -> None:
    file = tmp_path / f"a{suffix}"
    assert export_comparisons(db, "hopper", file) == 0
    assert import_comparisons(other, "hopper", file) == 0


def test_only_what_still_stands_is_exported(db: Database, tmp_path: Path) -> None:
    fill(db, 1)
    supersede(db, 1, 1, Preference.RIGHT, "ann", "edit")
    supersede(db, 1, 2, Preference.WITHDRAWN, "ann", "undo")
    assert export_comparisons(db, "hopper", tmp_path / "a.jsonl") == 4
    rows = [json.loads(line) for line in (tmp_path / "a.jsonl").read_text().splitlines()]
    assert [row["uuid"] for row in rows] == ["uuid-2", "uuid-3", "uuid-4", "edit"]
    assert rows[3]["preference"] == "right"


@FORMATS
def test_no_true_reward_in_the_file(db: Database, tmp_path: Path, suffix: str) -> None:
    fill(db, 1)
    file = tmp_path / f"a{suffix}"
    export_comparisons(db, "hopper", file)
    names = pq.read_schema(file).names if suffix == ".parquet" else list(json.loads(file.read_text().split("\n")[0]))
    assert not [name for name in names if "true" in name or "reward" in name or "return" in name]
    if suffix == ".jsonl":
        assert "7777.125" not in file.read_text()


def test_columns_of_a_row(db: Database, tmp_path: Path) -> None:
    fill(db, 1)
    export_comparisons(db, "hopper", tmp_path / "a.jsonl")
    export_comparisons(db, "hopper", tmp_path / "a.parquet")
    row = json.loads((tmp_path / "a.jsonl").read_text().split("\n")[0])
    assert pq.read_schema(tmp_path / "a.parquet").names == list(row)
    assert row["created"] == "2001-09-09T01:46:40.000Z"
    assert row["env_id"] == "hopper"
    assert row["spaces"] == BOX
    assert row["detail"] == {"z": 0, "a": [None]}
    assert row["segment_1_obs_shape"] == [T, OBS]
    assert row["segment_1_obs_dtype"] == "<f8"
    assert len(row["segment_1_obs"]) == T * OBS
    assert row["segment_2_states"] is None
    assert row["segment_1_digest"] == make_segment(0).digest


@FORMATS
def test_equal_content_gives_equal_bytes(db: Database, tmp_path: Path, suffix: str) -> None:
    fill(db, 1)
    first, second = tmp_path / f"a{suffix}", tmp_path / f"b{suffix}"
    export_comparisons(db, "hopper", first)
    export_comparisons(db, "hopper", second)
    export_comparisons(db, "hopper", second)  # replaces it
    assert first.read_bytes() == second.read_bytes()
    assert {path.name for path in tmp_path.iterdir() if not path.name.startswith("a.db")} == {first.name, second.name}


@FORMATS
def test_exports_at_once_do_not_mix(db: Database, tmp_path: Path, suffix: str) -> None:
    new_run(db, "empty")
    fill(db, 1)
    folder = tmp_path / "out"
    folder.mkdir()
    export_comparisons(db, "hopper", folder / f"full{suffix}")
    export_comparisons(db, "empty", folder / f"none{suffix}")
    allowed = {(folder / f"full{suffix}").read_bytes(), (folder / f"none{suffix}").read_bytes()}
    shared, errors = folder / f"shared{suffix}", []

    def work(name: str) -> None:
        try:
            for _ in range(10):
                export_comparisons(db, name, shared)
                if shared.read_bytes() not in allowed:
                    errors.append("mixed")
        except Exception as error:
            errors.append(repr(error))

    threads = [threading.Thread(target=work, args=(name,)) for name in ("hopper", "empty", "hopper")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert len(list(folder.iterdir())) == 3


def interrupted(file: Path) -> None:
    with replacing(file) as out:
        out.write(b"half")
        raise KeyboardInterrupt


def test_a_failed_export_keeps_the_old_file(db: Database, tmp_path: Path) -> None:
    fill(db, 1)
    file = tmp_path / "out" / "a.jsonl"
    with pytest.raises(DataError, match="mkdir -p"):
        export_comparisons(db, "hopper", file)
    file.parent.mkdir()
    file.write_text("old")
    bad = Segment(np.full((T, OBS), np.nan), np.zeros((T, ACT), np.float32))
    ids = add_segments(db, 1, [bad, make_segment(0)], None)
    add_comparisons(db, 1, [NewComparison(ids[0], ids[1], Preference.LEFT, "ann", "nan")])
    with pytest.raises(DataError, match=r"comparison 6: segment \d+: its obs hold NaN"):
        export_comparisons(db, "hopper", file)
    with pytest.raises(KeyboardInterrupt):
        interrupted(file)
    assert file.read_text() == "old"
    assert list(file.parent.iterdir()) == [file]
    (tmp_path / "d.jsonl").mkdir()
    with pytest.raises(DataError, match="is a folder"):
        export_comparisons(db, "hopper", tmp_path / "d.jsonl")


def test_a_link_stays_a_link_and_the_file_has_the_usual_rights(db: Database, tmp_path: Path) -> None:
    fill(db, 1)
    link = tmp_path / "link.jsonl"
    link.symlink_to(tmp_path / "real.jsonl")
    export_comparisons(db, "hopper", link)
    assert link.is_symlink()
    assert len((tmp_path / "real.jsonl").read_text().splitlines()) == 5
    (tmp_path / "usual").touch()
    assert os.stat(tmp_path / "real.jsonl").st_mode == os.stat(tmp_path / "usual").st_mode


@pytest.mark.parametrize("name", ["a.pkl", "a.npz", "a.csv", "a"])
def test_other_formats_are_refused_by_name(db: Database, tmp_path: Path, name: str) -> None:
    for action in (import_comparisons,) if name == "a.csv" else (export_comparisons, import_comparisons):
        with pytest.raises(DataError, match=rf"{name}: .*use \.parquet or \.jsonl"):
            action(db, "hopper", tmp_path / name)


def test_a_csv_has_every_row_without_its_segments(db: Database, tmp_path: Path) -> None:
    run = get_run(db, "hopper")
    fill(db, run.id)
    supersede(db, run.id, 2, Preference.WITHDRAWN, "ann", "undo")
    assert export_comparisons(db, "hopper", tmp_path / "a.csv") == 6
    text = (tmp_path / "a.csv").read_bytes().decode("utf-8-sig")
    assert [line.split(",")[:2] for line in text.splitlines()] == [
        ["seq", "uuid"],
        *([str(n + 1), f"uuid-{n}"] for n in range(5)),
        ["6", "undo"],
    ]


def test_unknown_runs_and_runs_without_spaces(db: Database, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="no run named"):
        export_comparisons(db, "hoper", tmp_path / "a.jsonl")
    create_run(db, "bare", {"seed": 1}, {})
    with pytest.raises(DataError, match="'bare'"):
        import_comparisons(db, "bare", tmp_path / "a.jsonl")


@FORMATS
def test_the_same_file_twice_adds_nothing(
    db: Database, other: Database, tmp_path: Path, suffix: str, caplog: pytest.LogCaptureFixture
) -> None:
    fill(db, 1)
    file = tmp_path / f"a{suffix}"
    export_comparisons(db, "hopper", file)
    assert import_comparisons(db, "hopper", file) == 0  # where it comes from
    assert import_comparisons(other, "hopper", file) == 5
    before = dump(other)
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        assert import_comparisons(other, "hopper", file) == 0
    assert dump(other) == before
    assert "all 5 comparisons are in run 'hopper' already" in caplog.text


def test_foreign_files_twice_add_nothing_and_equal_rows_count_apart(db: Database, tmp_path: Path) -> None:
    file = write(tmp_path / "a.jsonl", foreign(), foreign(), foreign(preference="right"))
    assert import_comparisons(db, "hopper", file) == 3
    assert import_comparisons(db, "hopper", file) == 0
    assert len({row.uuid for row in comparisons(db)}) == 3


def test_another_run_of_the_same_database(db: Database, tmp_path: Path) -> None:
    fill(db, 1)
    new_run(db, "second")
    new_run(db, "third")
    files = [tmp_path / f"{n}.jsonl" for n in range(3)]
    export_comparisons(db, "hopper", files[0])
    assert import_comparisons(db, "second", files[0]) == 5
    assert import_comparisons(db, "second", files[0]) == 0
    export_comparisons(db, "second", files[1])
    assert files[1].read_bytes() == files[0].read_bytes()
    assert import_comparisons(db, "hopper", files[1]) == 0  # evidence comes home, and is known there
    assert import_comparisons(db, "third", files[0]) == 5
    assert import_comparisons(db, "third", files[1]) == 0
    assert len(comparisons(db)) == 5


def test_an_edited_answer_does_not_come_back(db: Database, tmp_path: Path) -> None:
    fill(db, 1)
    export_comparisons(db, "hopper", tmp_path / "a.jsonl")
    supersede(db, 1, 1, Preference.WITHDRAWN, "ann", "undo")
    assert import_comparisons(db, "hopper", tmp_path / "a.jsonl") == 0
    assert len(comparisons(db)) == 4


@FORMATS
@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_arrays_round_trip(tmp_path_factory: pytest.TempPathFactory, suffix: str, data: st.DataObject) -> None:
    folder = tmp_path_factory.mktemp("any")
    shape = data.draw(hnp.array_shapes(max_dims=3, max_side=4))
    obs_dtype = data.draw(st.sampled_from(["u1", "i4", "f2", "f4", "f8", ">f4", "?"]))
    discrete = data.draw(st.booleans())
    act_shape: tuple[int, ...] = () if discrete else data.draw(hnp.array_shapes(min_dims=0, max_dims=2, max_side=3))
    finite = {"elements": {"allow_nan": False, "allow_infinity": False}}
    small = {"elements": {"min_value": -3e38, "max_value": 3e38}} if obs_dtype == "f8" else finite
    obs = data.draw(hnp.arrays(obs_dtype, (T, *shape), **small))
    if discrete:
        act = data.draw(hnp.arrays("i8", (T,), elements=st.integers(0, 4)))
    else:
        act = data.draw(hnp.arrays("f4", (T, *act_shape), **finite))
    states = data.draw(st.none() | hnp.arrays("f8", (T, 2), **finite))
    spaces = {"obs_shape": list(shape), "act_shape": list(act_shape), "n_actions": 5 if discrete else None}
    first = Segment(obs, act, states)
    second = Segment(obs, 4 - act if discrete else np.where(act == 0, np.float32(1), np.float32(0)), None)
    if first.digest == second.digest:
        return
    files = []
    for name in ("a", "b"):
        with Database.create(f"sqlite:///{folder}/{name}.db") as db:
            run_id = new_run(db, spaces=spaces)
            if name == "a":
                ids = add_segments(db, run_id, [first, second], None)
                add_comparisons(db, run_id, [NewComparison(ids[0], ids[1], Preference.TIE, "ann", "one")])
            else:
                assert import_comparisons(db, "hopper", files[0]) == 1
                loaded = load_segments(db, [1, 2], with_states=True)
                assert {one.digest for one in loaded.values()} == {first.digest, second.digest}
                back = next(one for one in loaded.values() if one.digest == first.digest)
                assert back.obs.dtype == obs.dtype
                assert np.array_equal(back.obs, obs)
                assert (back.states is None) == (states is None)
            files.append(folder / f"{name}{suffix}")
            export_comparisons(db, "hopper", files[-1])
    assert files[0].read_bytes() == files[1].read_bytes()


@FORMATS
def test_stacked_frames_and_an_emulators_state_round_trip(tmp_path: Path, suffix: str) -> None:
    rng = np.random.default_rng(0)
    frames = rng.integers(0, 256, (2, T + 3, 5, 6), dtype=np.uint8)
    states = rng.integers(0, 256, (2, 1, 90), dtype=np.uint8)
    first, second = (Segment(to_stacks(frames[i], 4), rng.integers(0, 5, T), states[i]) for i in (0, 1))
    spaces = {"obs_shape": [4, 5, 6], "act_shape": [], "n_actions": 5}
    file = tmp_path / f"a{suffix}"
    for name in ("a", "b"):
        with Database.create(f"sqlite:///{tmp_path}/{name}.db") as db:
            run_id = new_run(db, spaces=spaces)
            if name == "a":
                ids = add_segments(db, run_id, [first, second], None)
                add_comparisons(db, run_id, [NewComparison(ids[0], ids[1], Preference.LEFT, "ann", "one")])
                export_comparisons(db, "hopper", file)
                continue
            assert import_comparisons(db, "hopper", file) == 1
            found = {one.digest: one for one in load_segments(db, [1, 2], with_states=True).values()}
    for one in (first, second):
        back = found[one.digest]
        assert back.replayed
        assert np.array_equal(back.states, one.states)
        assert np.array_equal(back.obs, one.obs)
        assert not back.obs.flags.writeable, "a view over single frames here, too"


def test_a_number_that_parquet_would_round_is_refused(db: Database, tmp_path: Path) -> None:
    obs = np.full((T, OBS), 2**53 + 1)
    ids = add_segments(db, 1, [Segment(obs, np.zeros((T, ACT), np.float32)), make_segment(0)], None)
    add_comparisons(db, 1, [NewComparison(ids[0], ids[1], Preference.LEFT, "ann", "big")])
    with pytest.raises(DataError, match=r"segment_1_obs of comparison big.*export to \.jsonl"):
        export_comparisons(db, "hopper", tmp_path / "a.parquet")
    assert not (tmp_path / "a.parquet").exists()
    assert export_comparisons(db, "hopper", tmp_path / "a.jsonl") == 1
    assert import_comparisons(db, "hopper", tmp_path / "a.jsonl") == 0


@FORMATS
def test_minimal_foreign_file(db: Database, tmp_path: Path, suffix: str) -> None:
    flat = foreign()
    for side in (1, 2):
        for name, width in (("obs", OBS), ("act", ACT)):
            flat[f"segment_{side}_{name}"] = np.ravel(flat[f"segment_{side}_{name}"]).tolist()
            flat[f"segment_{side}_{name}_shape"] = [T, width]
    nested = foreign()
    assert import_comparisons(db, "hopper", write(tmp_path / f"a{suffix}", nested)) == 1
    assert import_comparisons(db, "hopper", write(tmp_path / f"b{suffix}", flat)) == 0  # the same content
    (row,) = comparisons(db)
    assert (row.preference, row.mu, row.shown_left, row.annotator) == (Preference.LEFT, 1.0, 1, "import")
    assert row.created_ms > 10**12
    one = load_segments(db, [row.segment_1], with_states=True)[row.segment_1]
    assert (one.obs.dtype, one.act.dtype, one.states, one.source) == (np.float32, np.float32, None, "import")
    assert np.array_equal(one.obs, np.float32(nested["segment_1_obs"]))


def test_foreign_discrete_actions(tmp_path: Path) -> None:
    with Database.create(f"sqlite:///{tmp_path}/d.db") as db:
        new_run(db, spaces=DISCRETE)
        good = foreign(segment_1_act=[0, 1, 2, 0], segment_2_act=[0.0, 1.0, 2.0, 2.0], segment_1_obs_dtype="uint8")
        good["segment_1_obs"] = np.arange(T * OBS).reshape(T, OBS).tolist()
        assert import_comparisons(db, "hopper", write(tmp_path / "a.jsonl", good)) == 1
        loaded = load_segments(db, [1, 2])
        assert {one.act.dtype for one in loaded.values()} == {np.dtype(np.int64)}
        assert {one.obs.dtype for one in loaded.values()} == {np.dtype(np.uint8), np.dtype(np.float32)}
        for act, words in (([0, 1, 2, 3], "actions go from 0 to 2"), ([0, 1, 2, 0.5], "that int64 cannot")):
            bad = write(tmp_path / "b.jsonl", good | {"segment_2_act": act})
            with pytest.raises(DataError, match=words):
                import_comparisons(db, "hopper", bad)
        bad = write(tmp_path / "b.jsonl", good | {"segment_2_act_dtype": "float32"})
        with pytest.raises(DataError, match="actions of run 'hopper' are integers"):
            import_comparisons(db, "hopper", bad)


@FORMATS
@pytest.mark.parametrize(
    ("column", "values", "labels", "expected"),
    [
        ("preference", ["left", "right", "tie", "incomparable"], None, [1.0, 0.0, 0.5, None]),
        ("mu", [1.0, 0.0, 0.5], None, [1.0, 0.0, 0.5]),
        ("mu", [1.0, 0.0, 0.5], "mu", [1.0, 0.0, 0.5]),
        ("label", [-1, 0, 1], None, [0.0, 0.5, 1.0]),
        ("label", [-1, 0, 1], "sign", [0.0, 0.5, 1.0]),
        ("label", [0, 1], "sign", [0.5, 1.0]),
        ("label", [0, 1, 0.5], "mu", [0.0, 1.0, 0.5]),
        ("label", [0, 1, 0.5], "index", [1.0, 0.0, 0.5]),
    ],
)
def test_label_encodings(
    db: Database,
    tmp_path: Path,
    suffix: str,
    column: str,
    values: list[Any],
    labels: str | None,
    expected: list[float | None],
) -> None:
    plain = [float(v) if 0.5 in values else v for v in values]  # a Parquet column has one type
    rows = [foreign(**{"preference": None, "annotator": str(n), column: v}) for n, v in enumerate(plain)]
    assert import_comparisons(db, "hopper", write(tmp_path / f"a{suffix}", *rows), labels=labels) == len(values)
    assert mus(db) == expected


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ([0, 1], "mu or sign or index: say which with --labels"),
        ([0, 0.5], "mu or index: say which with --labels"),
        ([1], "mu or sign or index"),
        ([-1, 0.5], "-1 and 0.5 do not go together"),
    ],
)
def test_ambiguous_labels_are_not_guessed(db: Database, tmp_path: Path, values: list[float], words: str) -> None:
    file = write(tmp_path / "a.jsonl", *(foreign(preference=None, label=v) for v in values))
    before = dump(db)
    with pytest.raises(DataError, match=words) as caught:
        import_comparisons(db, "hopper", file)
    assert str(file) in str(caught.value)
    assert dump(db) == before


def test_labels_mean_segments_not_sides(db: Database, tmp_path: Path) -> None:
    rows = [
        foreign(preference=None, label=1, shown_left=2, annotator="a"),
        foreign(preference=None, label=-1, shown_left=2, annotator="b"),
        foreign(preference=None, label=-1, shown_left=1, annotator="c"),
    ]
    import_comparisons(db, "hopper", write(tmp_path / "a.jsonl", *rows))
    assert [(row.preference, row.mu) for row in comparisons(db)] == [("right", 1.0), ("left", 0.0), ("right", 0.0)]


NUMBERS = [[0.5] * OBS] * T
REFUSALS: list[tuple[dict[str, Any], str | None, str]] = [
    ({"segment_2_act": None}, None, "segment_2_act is missing"),
    ({"preference": None}, None, "has no label"),
    ({"segment_1_obs": [[float("nan")] * OBS] * T}, None, "NaN"),
    ({"segment_1_obs": [[1e400] * OBS] * T}, None, "Infinity|NaN or infinity"),
    ({"segment_1_obs": [[1e300] * OBS] * T}, None, "that float32 cannot"),
    ({"segment_1_obs": NUMBERS[1:]}, None, r"segment_1_obs has shape \(3, 3\), but run 'hopper' has \(4, 3\)"),
    ({"segment_1_obs": [[0.5] * 4] * T}, None, r"shape \(4, 4\)"),
    ({"segment_1_obs": [0.5] * 12}, None, "segment_1_obs_shape"),
    ({"segment_1_obs": [0.5] * 12, "segment_1_obs_shape": [4, 4]}, None, "does not fit"),
    ({"segment_1_obs": [0.5] * 12, "segment_1_obs_shape": [4, -3]}, None, "list of whole numbers"),
    ({"segment_1_obs": [[0.5] * OBS, [0.5]] * 2}, None, "ragged"),
    ({"annotator": "x" * 101}, None, "annotator has 101 signs: at most 100"),
    ({"segment_1_obs": [[1e300] * OBS] * T, "segment_1_obs_dtype": "float64"}, None, "beyond 3.4e38"),
    ({"segment_1_obs": [["0.5"] * OBS] * T}, None, "not a list of numbers"),
    ({"segment_1_obs": "0.5"}, None, "not a list of numbers"),
    ({"segment_1_obs": [[0.5, None, 0.5]] * T}, None, "not a list of numbers"),
    ({"segment_1_obs_dtype": "object"}, None, "number type"),
    ({"segment_1_obs_dtype": "uint8"}, None, "that uint8 cannot"),
    ({"segment_1_states": [[1.0]] * 3}, None, r"\(4, n_state\)"),
    ({"segment_2_digest": "0" * 64}, None, "segment_2_digest does not match"),
    ({"segment_2_episode": -1}, None, "segment_2_episode is -1"),
    ({"env_id": "ant"}, None, "env_id is 'ant', but run 'hopper' is about 'hopper'"),
    ({"spaces": {**BOX, "act_shape": [9]}}, None, "spaces are"),
    ({"preference": "first"}, None, "preference is 'first'"),
    ({"preference": "withdrawn"}, None, "preference is 'withdrawn'"),
    ({"mu": 0.0}, None, "mu is 0.0, but preference left"),
    ({"preference": None, "mu": 0.7}, None, "mean of several answers"),
    ({"preference": None, "mu": 1.5}, None, "mu is 1.5"),
    ({"preference": None, "label": 2}, None, "label is 2"),
    ({"preference": None, "label": True}, None, "label is True"),
    ({"preference": None, "label": "left"}, None, "label is 'left'"),
    ({"preference": None, "label": 0.5}, "sign", "label is 0.5: --labels sign knows -1, 0, 1"),
    ({"preference": None, "label": -1}, "index", "write 0.5"),
    ({"preference": None, "label": -1}, "mu", "label is -1"),
    ({"label": 1}, None, "leave one of them"),
    ({}, "sign", "no column label"),
    ({"shown_left": 0}, None, "shown_left is 0"),
    ({"shown_left": 3}, None, "shown_left is 3"),
    ({"response_ms": -5}, None, "response_ms is -5"),
    ({"response_ms": 1.5}, None, "response_ms is 1.5"),
    ({"created": "yesterday"}, None, "created is 'yesterday'"),
    ({"created": "2025-01-31T12:00:00"}, None, "created is"),
    ({"detail": [1]}, None, "a JSON object"),
    ({"detail": "{"}, None, "detail is not valid JSON"),
    ({"annotator": "a\0b"}, None, "annotator is"),
    ({"uuid": 5}, None, "uuid is 5"),
    ({"uuid": ""}, None, "uuid is empty"),
    ({"uuid": "seen"}, None, "uuid seen is that of row 1 already"),
]


@pytest.mark.parametrize(("changes", "labels", "words"), REFUSALS, ids=[words for *_, words in REFUSALS])
def test_refusals_name_the_row_and_change_nothing(
    db: Database, tmp_path: Path, changes: dict[str, Any], labels: str | None, words: str
) -> None:
    fill(db, 1)
    before = dump(db)
    good = foreign(preference=None, label=1) if labels and "label" in changes else foreign(uuid="seen")
    if labels == "sign" and not changes:
        good = foreign(preference=None, label=1)
    file = write(tmp_path / "a.jsonl", good, foreign(**changes), good | {"uuid": "other"})
    for dry_run in (True, False):
        with pytest.raises(DataError, match=words) as caught:
            import_comparisons(db, "hopper", file, labels=labels, dry_run=dry_run)
        assert str(caught.value).startswith(f"{file}: 1 row is not valid; nothing was imported:\n  row 2: ")
    assert dump(db) == before


def test_a_segment_against_itself_is_refused(db: Database, tmp_path: Path) -> None:
    row = foreign()
    row |= {"segment_2_obs": row["segment_1_obs"], "segment_2_act": row["segment_1_act"]}
    with pytest.raises(DataError, match="row 1: compares a segment with itself"):
        import_comparisons(db, "hopper", write(tmp_path / "a.jsonl", row))


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (b'{"a": 1', "is not valid JSON"),
        (b"[1]", "is not a JSON object but list"),
        (b"[" * 100_000, "is not valid JSON"),
        (b'{"a": "\xff"}', "is not valid JSON"),
        (b'{"mu": NaN}', r"is not valid JSON \(NaN is not a finite number"),
    ],
)
def test_bad_lines(db: Database, tmp_path: Path, line: bytes, words: str) -> None:
    file = tmp_path / "a.jsonl"
    good = json.dumps(foreign()).encode()
    file.write_bytes(b"\n".join([good, b"", line, good]))
    before = dump(db)
    with pytest.raises(DataError, match=f"row 3: {words}"):
        import_comparisons(db, "hopper", file)
    assert dump(db) == before


def test_ten_errors_are_named_and_the_rest_counted(db: Database, tmp_path: Path) -> None:
    file = write(tmp_path / "a.jsonl", *[foreign(uuid=str(n), preference=f"x{n}" if n else "left") for n in range(14)])
    with pytest.raises(DataError) as caught:
        import_comparisons(db, "hopper", file)
    lines = str(caught.value).splitlines()
    assert lines[0] == f"{file}: 13 rows are not valid; nothing was imported:"
    assert lines[1].startswith("  row 2: ")
    assert lines[10].startswith("  row 11: ")
    assert lines[11:] == ["  and 3 more"]


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        ({2}, "row 2"),
        ({1, 2}, "rows 1 and 2"),
        (set(range(1, 11)), "rows 1 to 10"),
        ({2, 5, 6, 9}, "rows 2, 5, 6 and 9"),
        ({1, 3, 4, 5, 12}, "rows 1, 3, 4 and 2 more"),
    ],
)
def test_rows_with_the_same_error_share_a_line(db: Database, tmp_path: Path, bad: set[int], words: str) -> None:
    sides = {n: {"shown_left": 7} if n in bad else {} for n in range(1, 13)}
    rows = [foreign(uuid=str(n), **({"response_ms": -3} if n == 11 else sides[n])) for n in range(1, 13)]
    with pytest.raises(DataError) as caught:
        import_comparisons(db, "hopper", write(tmp_path / "a.jsonl", *rows))
    same = f"  {words}: shown_left is 7: 1 or 2 is needed"
    other = "  row 11: response_ms is -3: a whole number from 0 is needed"
    assert str(caught.value).splitlines()[1:] == [same, other]


def test_a_file_without_comparisons_is_told(db: Database, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = tmp_path / "a.jsonl"
    file.write_text(" \n\n")
    for dry_run in (True, False):
        caplog.clear()
        assert import_comparisons(db, "hopper", file, dry_run=dry_run) == 0
        assert caplog.messages == [f"{file}: holds no comparisons"]


def test_parquet_refusals(db: Database, tmp_path: Path) -> None:
    file, before = tmp_path / "a.parquet", dump(db)
    rows = [foreign(), foreign(segment_1_obs=[[float("inf")] * OBS] * T)]
    cases: list[tuple[Callable[[], object], str]] = [
        (lambda: write(file, *rows), "row 2: segment_1_obs holds NaN or infinity"),
        (lambda: write(file, foreign(segment_2_act=None, preference=None)), "missing columns: segment_2_act, a label"),
        (lambda: file.write_bytes(b"PAR1 no"), "is not a readable Parquet file"),
        (lambda: file.unlink(), "cannot be read"),
        (lambda: file.mkdir(), "cannot be read|not a readable"),
    ]
    for make, words in cases:
        make()
        with pytest.raises(DataError, match=words) as caught:
            import_comparisons(db, "hopper", file)
        assert str(file) in str(caught.value)
    assert dump(db) == before


def test_damaged_parquet_never_gets_through(db: Database, other: Database, tmp_path: Path) -> None:
    fill(db, 1)
    file = tmp_path / "a.parquet"
    export_comparisons(db, "hopper", file)
    whole, before = file.read_bytes(), dump(other)
    rng = np.random.default_rng(0)
    for at in rng.integers(4, len(whole) // 2, size=40).tolist():
        file.write_bytes(whole[:at] + bytes([whole[at] ^ 0x55]) + whole[at + 1 :])
        try:
            import_comparisons(other, "hopper", file, dry_run=True)
        except DataError as error:
            assert str(file) in str(error)  # noqa: PT017  # some flipped bits are in bytes that nobody reads
    file.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DataError, match="is not a readable Parquet file"):
        import_comparisons(other, "hopper", file)
    assert dump(other) == before


def test_a_known_uuid_with_other_content_is_refused(db: Database, tmp_path: Path) -> None:
    import_comparisons(db, "hopper", write(tmp_path / "a.jsonl", foreign(uuid="u")))
    before = dump(db)
    file = write(tmp_path / "b.jsonl", foreign(uuid="v"), foreign(uuid="u", preference="right"))
    for dry_run in (True, False):
        with pytest.raises(DataError, match="row 2: uuid u is in run 'hopper' already, with other content"):
            import_comparisons(db, "hopper", file, dry_run=dry_run)
    assert dump(db) == before


def test_an_error_while_writing_leaves_nothing(db: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = write(tmp_path / "a.jsonl", foreign(), foreign(preference="right"))
    before, calls = dump(db), []

    def append(*_: object) -> None:
        calls.append(1)
        if len(calls) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr("prefrl.transfer.importing.append", append)
    with pytest.raises(KeyboardInterrupt):
        import_comparisons(db, "hopper", file)
    assert dump(db) == before


def test_unknown_encoding(db: Database, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="--labels is 'odd'"):
        import_comparisons(db, "hopper", tmp_path / "a.jsonl", labels="odd")


def test_times_with_zones_and_parquet_timestamps(db: Database, tmp_path: Path) -> None:
    import datetime

    rows = [foreign(created="2001-09-09T03:46:40.123+02:00"), foreign(created="2001-09-09T01:46:40Z", annotator="b")]
    import_comparisons(db, "hopper", write(tmp_path / "a.jsonl", *rows))
    stamp = datetime.datetime(2001, 9, 9, 1, 46, 40, 500_000)
    import_comparisons(db, "hopper", write(tmp_path / "a.parquet", foreign(created=stamp)))
    assert [row.created_ms for row in comparisons(db)] == [10**12 + 123, 10**12, 10**12 + 500]


def test_no_torch_is_imported() -> None:
    import subprocess
    import sys

    code = "import sys, prefrl.transfer; sys.exit(any(m in sys.modules for m in ('torch', 'pyarrow', 'pandas')))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
