"""What an import costs, and which way imports point."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "prefrl"
HEAVY = {"torch", "gymnasium", "mujoco", "stable_baselines3", "sb3_contrib", "tensorboard", "safetensors"}
PLOTS = {"matplotlib", "pandas", "pyarrow", "rich"}
DATABASE = {"sqlalchemy", "alembic", "psycopg"}


def _loaded(code: str) -> set[str]:
    """Top-level modules that a fresh interpreter holds after running ``code``."""
    code += "\nimport sys; print('LOADED', *{name.partition('.')[0] for name in sys.modules})"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    return set(run.stdout.rpartition("LOADED")[2].split())


@pytest.mark.parametrize(
    ("code", "forbidden"),
    [
        ("import prefrl", HEAVY | PLOTS | DATABASE | {"numpy"}),
        ("import prefrl.cli; prefrl.cli.build_parser()", HEAVY | PLOTS | DATABASE | {"numpy"}),
        ("from prefrl.cli import *; config_from(build_parser().parse_args(['run', 'hopper']))", HEAVY | PLOTS),
        ("import prefrl.settings; prefrl.settings.settings()", HEAVY | PLOTS | DATABASE),
        ("import prefrl.store", HEAVY | PLOTS),
        ("import prefrl.store.queue, prefrl.store.comparisons, prefrl.store.rewards", HEAVY | PLOTS),
        ("import prefrl.oracle.role", HEAVY | PLOTS),
        ("import prefrl.reward_model.schedule, prefrl.reward_model.bootstrap, prefrl.rollout.pace", HEAVY | PLOTS),
    ],
)
def test_imports_stay_light(code: str, forbidden: set[str]) -> None:
    loaded = _loaded(code)
    assert "prefrl" in loaded
    assert not loaded & forbidden


def test_the_look_at_loaded_modules_can_fail() -> None:
    """Negative control: it sees the modules that are loaded."""
    assert "torch" in _loaded("import prefrl.reward_model.nets")
    assert "sqlalchemy" in _loaded("import prefrl.store")


def test_help_loads_nothing_heavy() -> None:
    code = "import contextlib, prefrl.cli\nwith contextlib.suppress(SystemExit): prefrl.cli.main(['run', '--help'])"
    assert not _loaded(code) & (HEAVY | PLOTS | DATABASE)


def test_the_command_answers() -> None:
    run = subprocess.run([sys.executable, "-m", "prefrl", "--help"], capture_output=True, text=True, cwd=ROOT)
    assert run.returncode == 0
    assert "compare short clips" in run.stdout
    assert run.stderr == ""


def _imports(path: Path) -> Iterator[tuple[int, str]]:
    """Line and full name of every import of a file, lazy ones included."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from ((node.lineno, f"{node.module or ''}.{alias.name}".strip(".")) for alias in node.names)
        elif isinstance(node, ast.Call) and getattr(node.func, "attr", getattr(node.func, "id", "")) in (
            "import_module",
            "__import__",
        ):
            yield from ((node.lineno, str(a.value)) for a in node.args if isinstance(a, ast.Constant))


def _found(folder: Path, forbidden: set[str]) -> list[str]:
    return [
        f"{path.relative_to(folder)}:{line} {name}"
        for path in sorted(folder.rglob("*.py"))
        for line, name in _imports(path)
        if any(name == f or name.startswith(f"{f}.") for f in forbidden)
    ]


PICKLES = {"pickle", "_pickle", "cPickle", "dill", "cloudpickle", "joblib", "shelve", "marshal", "numpy.load"}


def test_the_package_imports_neither_the_app_nor_experiments_nor_tests() -> None:
    found = _found(PACKAGE, {"labeling_app", "experiments", "tests"})
    assert [re.sub(r":\d+", "", line) for line in found] == ["run/people.py labeling_app.serve"], "`prefrl label` alone"


def test_the_package_imports_no_pickle() -> None:
    assert _found(PACKAGE, PICKLES) == []


def test_the_store_knows_no_torch_and_nothing_above_it() -> None:
    above = {f"prefrl.{name}" for name in ("reward_model", "rollout", "run", "envs", "oracle", "cli", "report")}
    assert _found(PACKAGE / "store", {"torch", "safetensors", "gymnasium", "stable_baselines3", *above}) == []


def test_the_reward_model_never_imports_the_true_rewards() -> None:
    forbidden = {"prefrl.store.segments.true_returns", "prefrl.store.segments.true_rewards", "prefrl.oracle"}
    assert _found(PACKAGE / "reward_model", forbidden) == []


def test_the_scan_can_fail(tmp_path: Path) -> None:
    """Negative control: every way to import is seen."""
    (tmp_path / "bad.py").write_text(
        "import pickle as p\ndef f():\n    from pickle import loads\n    import importlib\n"
        "    importlib.import_module('labeling_app.main')\n    from labeling_app import page\n"
    )
    found = _found(tmp_path, {"pickle", "labeling_app"})
    assert sorted(line.split(" ")[0] for line in found) == ["bad.py:1", "bad.py:3", "bad.py:5", "bad.py:6"]


def _pickling_calls(folder: Path) -> list[str]:
    """Calls that pickle without an import of it: torch.save, torch.load, np.load with allow_pickle."""
    bad = []
    for path in sorted(folder.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Call):
                continue
            if ast.unparse(node.func) in ("torch.save", "torch.load", "th.save", "th.load"):
                bad.append(f"{path.name}:{node.lineno}")
            for keyword in node.keywords:
                if keyword.arg == "allow_pickle" and ast.unparse(keyword.value) != "False":
                    bad.append(f"{path.name}:{node.lineno}")
    return bad


def test_nothing_is_pickled_through_a_library() -> None:
    assert _pickling_calls(PACKAGE) == []


def test_the_scan_for_calls_can_fail(tmp_path: Path) -> None:
    (tmp_path / "bad.py").write_text("torch.load(f)\nnp.load(f, allow_pickle=True)\nnp.load(f, allow_pickle=False)\n")
    assert _pickling_calls(tmp_path) == ["bad.py:1", "bad.py:2"]
