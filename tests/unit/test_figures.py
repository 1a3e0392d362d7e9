"""Figures of a study: what is in the page is what the cells say."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from experiments.figures import read_study, rows, write_figures
from experiments.tables import write_tables
from prefrl.errors import ConfigError


def done(folder: Path, method: str, labels: int | None, seed: int, final: float) -> Path:
    """A cell's folder with a result."""
    cell = folder / "cells" / f"{method}{labels}{seed}"
    cell.mkdir(parents=True)
    result = {
        **{"cell": cell.name, "task": "pendulum", "method": method, "labels": labels, "seed": seed},
        **{"true_return": final, "wall_s": 10.0, "cpu_s": 8.0, "commits": ["<abc>"], "env_steps": 200},
        **{"versions": {"torch": "2"}, "machine": "here"},
        "curves": {"true_return": [(0, 0.0), (100, final / 2), (200, final)], "oob_accuracy": []},
    }
    (cell / "result.json").write_text(json.dumps(result))
    return cell


@pytest.fixture
def study(tmp_path: Path) -> Path:
    cells = [done(tmp_path, "original", 700, seed, final) for seed, final in enumerate((100, 90, 80, -110))]
    cells += [done(tmp_path, "rl", None, seed, 100) for seed in (1, 0)]
    cells.append(tmp_path / "cells" / "interrupted")
    write_tables(tmp_path, cells)
    return tmp_path


def test_the_table_has_each_seed_and_the_share_of_the_reference(study: Path) -> None:
    series = read_study(study)["pendulum"]
    assert list(series) == ["rl", "original, 700 comparisons"]
    reference, ours = rows(series)
    assert reference[:2] == ["rl", "2"]
    assert ours[:2] == ["original, 700 comparisons", "4"]
    assert ours[2].startswith("85 (")  # without the best and the worst
    assert ours[3:6] == ["40", "40.0 %", "100, 90, 80, -110"]
    assert ours[6:] == ["10 / 8", "<abc>"]


def test_a_share_of_a_loss_is_not_claimed(tmp_path: Path) -> None:
    write_tables(tmp_path, [done(tmp_path, "rl", None, 0, -5), done(tmp_path, "original", 7, 0, -10)])
    assert [row[4] for row in rows(read_study(tmp_path)["pendulum"])] == ["-", "-"]


def test_the_page_holds_the_figures_and_escapes_what_it_shows(study: Path, tmp_path: Path) -> None:
    files = {path.name for path in write_figures(read_study(study), tmp_path / "drawn")}
    assert files == {"pendulum.svg", "pendulum.png", "index.html"}
    page = (tmp_path / "drawn" / "index.html").read_text()
    assert "original, 700 comparisons (n=4)" in page
    assert "rl (n=2)" in page
    assert "&lt;abc&gt;" in page
    assert "<abc>" not in page
    assert "http://" not in page.replace("http://www.w3.org", ""), "it needs nothing from elsewhere"


def test_what_is_no_study_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="holds no study"):
        read_study(tmp_path)
    write_tables(tmp_path, [])
    with pytest.raises(ConfigError, match="is done yet"):
        read_study(tmp_path)
