"""The studies: what they run, and what they make of the results."""

from __future__ import annotations

import argparse
import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from experiments import ablations, label_efficiency, offline_vs_online, synthetic_oracle, teachers
from experiments.figures import Study, read_study
from experiments.grid import cells_of
from experiments.sweep import list_or_run
from experiments.tables import put_back, write_tables
from prefrl.errors import ConfigError
from prefrl.report.numbers import concordance
from prefrl.resolve import resolve
from prefrl.reward_model.schedule import n_held_out, n_initial
from prefrl.settings import from_dict

STUDIES = {
    synthetic_oracle: 3 * 2 + 2,
    ablations: 7 * 2 + 2,
    teachers: 12 * 2 + 2,
    offline_vs_online: 2 * 2,
    label_efficiency: 5 * 2 + 2,
}
LABELS = {synthetic_oracle: [350, 700, 1400], offline_vs_online: [770]}


def flags(labels: list[int]) -> argparse.Namespace:
    return argparse.Namespace(tasks=["pendulum"], labels=labels, seeds="0-1", steps=60_000)


@pytest.mark.parametrize("study", STUDIES, ids=lambda study: study.__name__.rpartition(".")[2])
def test_every_cell_of_a_study_can_be_started(study: object) -> None:
    cells = cells_of(study.grid(flags(LABELS.get(study, [700]))))  # type: ignore[attr-defined]
    assert len(cells) == STUDIES[study]
    assert len({cell.name for cell in cells}) == len(cells)


def test_both_ways_train_on_equally_many_comparisons() -> None:
    online, offline = cells_of(offline_vs_online.grid(flags([770])))[:2]
    labels = [resolve(from_dict(cell.settings)).label for cell in (online, offline)]
    assert [n_held_out(label) for label in labels] == [70, 70]
    assert [n_initial(label) for label in labels] == [175, 700]


def result(folder: Path, method: str, labels: int | None, seed: int, final: float, alarms: list[float]) -> Path:
    cell = folder / "cells" / f"{method}{labels}{seed}"
    cell.mkdir(parents=True)
    steps = [100 * i for i in range(len(alarms))]
    curves = {
        "true_return": [[0, -100.0], [100, final / 2], [200, final]],
        "learned_return": [[0, 0.0], [200, 50.0]],
        "accuracy": [[100, 0.6], [200, 0.7]],
        "hacking_alarm": list(zip(steps, alarms, strict=True)),
    }
    what = {"task": "pendulum", "method": method, "labels": labels, "seed": seed, "true_return": final}
    rest = {"cell": cell.name, "wall_s": 1.0, "cpu_s": 1.0, "commits": ["a"], "env_steps": 200, "machine": "here"}
    (cell / "result.json").write_text(json.dumps({**what, **rest, "versions": {}, "curves": curves}))
    return cell


@pytest.fixture
def parted(tmp_path: Path) -> Study:
    cells = [
        result(tmp_path, "online", 770, 0, 100.0, [0, 0, 0]),
        result(tmp_path, "online", 770, 1, 90.0, [0, 1, 0]),
        result(tmp_path, "offline", 770, 0, -60.0, [0, 1, 1]),
        result(tmp_path, "offline", 770, 1, -5.0, [1, 1, 0]),
        result(tmp_path, "offline", 770, 2, 1.0, [0, 0, 1]),
    ]
    write_tables(tmp_path, cells)
    return read_study(tmp_path)


def test_tables_alone_tell_what_is_done(parted: Study, tmp_path: Path) -> None:
    out = tmp_path / "elsewhere"
    out.mkdir()
    for name in ("cells.json", "curves.parquet"):
        shutil.copy(tmp_path / name, out)
    put_back(out)
    before, after = (sorted(folder.glob("cells/*/result.json")) for folder in (tmp_path, out))
    assert [path.parent.name for path in after] == [path.parent.name for path in before]
    assert [json.loads(path.read_text()) for path in after] == [json.loads(path.read_text()) for path in before]
    after[0].write_text("{}")
    put_back(out)
    assert after[0].read_text() == "{}", "a result in a folder is newer than the tables"


def test_tables_that_cannot_be_read_are_not_written_anew(parted: Study, tmp_path: Path) -> None:
    (tmp_path / "curves.parquet").unlink()
    cells = cells_of(offline_vs_online.grid(flags([770])))
    with pytest.raises(
        ConfigError, match=r"the tables of .* cannot be read .*: put both back, or choose another --out"
    ):
        list_or_run(cells, tmp_path, 1, only_list=True)
    assert len(json.loads((tmp_path / "cells.json").read_text())) == 5


def test_a_run_went_wrong_below_the_middle_between_untrained_and_best(parted: Study, tmp_path: Path) -> None:
    series = parted["pendulum"]
    wrong = offline_vs_online.went_wrong(series)  # the middle of -100 and 100 is 0
    assert list(wrong.values()) == [{0: False, 1: False}, {0: True, 1: True, 2: False}]
    bad, good = offline_vs_online.alarm_rates(series)
    assert bad == "2 runs went wrong: alarm at the end in 1, at any time in 2"
    assert good == "3 runs went well: alarm at the end in 1, at any time in 2"
    offline_vs_online.finish(parted, tmp_path)
    drawn = {path.name for path in tmp_path.glob("*.svg")}
    assert drawn == {
        "pendulum-online-770-comparisons.svg",
        "pendulum-offline-770-comparisons.svg",
        "pendulum-accuracy.svg",
    }
    assert "black: the alarm stands" in (tmp_path / "pendulum-offline-770-comparisons.svg").read_text()
    told = (tmp_path / "alarms.txt").read_text()
    assert "pendulum: 2 runs went wrong" in told
    assert "pendulum: offline, 770 comparisons: 2 of 3 wrong: seed 0 -60, seed 1 -5, seed 2 1\n" in told


def test_where_no_run_learned_anything_none_went_well(tmp_path: Path) -> None:
    cells = [result(tmp_path, way, 770, seed, -100.0, [0, 0]) for way in ("online", "offline") for seed in (0, 1)]
    write_tables(tmp_path, cells)
    offline_vs_online.finish(read_study(tmp_path), tmp_path)
    told = (tmp_path / "alarms.txt").read_text()
    assert told.startswith("pendulum: no run learned anything: the best ended at -100, the untrained")
    assert "went" not in told
    assert "pendulum: online, 770 comparisons: seed 0 -100, seed 1 -100\n" in told


def test_fewest_comparisons_that_are_enough(tmp_path: Path) -> None:
    finals = {("rl", None): 100.0, ("original", 100): 20.0, ("original", 350): 85.0, ("original", 200): 79.0}
    finals |= {("information", 200): 81.0, ("information", 100): 90.0, ("random-queries", 700): 0.0}
    write_tables(tmp_path, [result(tmp_path, *key, 0, value, []) for key, value in finals.items()])
    study = read_study(tmp_path)
    # nine tenths of the way from -100 to 100 is 80
    assert label_efficiency.needed(study["pendulum"]) == {"original": 350, "information": 100, "random-queries": None}
    label_efficiency.finish(study, tmp_path)
    assert "pendulum: random-queries: not reached" in (tmp_path / "needed.txt").read_text()


def test_concordance_by_hand() -> None:
    assert concordance(np.array([1.0, 2.0, 3.0]), np.array([1.0, 3.0, 2.0])) == pytest.approx(2 / 3)
    assert concordance(np.array([1.0, 1.0, 3.0]), np.array([1.0, 3.0, 3.0])) == pytest.approx((0.5 + 1) / 2)
    assert np.isnan(concordance(np.array([1.0, 2.0]), np.array([5.0, 5.0])))
