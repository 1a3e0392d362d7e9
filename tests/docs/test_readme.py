"""The README's Python is run, and its commands and switches exist."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from prefrl.cli import build_parser

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"<!-- runs: (\S+) -->\n```python\n(.*?)```", README, re.DOTALL)

TINY = ["--labels", "10", "--steps", "1024", "--policy.n_steps", "128", "--reward.pretrain_steps", "10"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the run that the README's examples use."""
    folder = tmp_path_factory.mktemp("readme")
    command = [sys.executable, "-m", "prefrl", "run", "pendulum", "--mode", "lockstep", *TINY]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "run pendulum-0 is done" in done.stdout
    return folder


def test_every_python_block_is_marked() -> None:
    assert len(BLOCKS) == README.count("```python") >= 3


@pytest.mark.parametrize(("name", "code"), BLOCKS, ids=[f"{i}-{name}" for i, (name, _) in enumerate(BLOCKS)])
def test_the_code_runs(name: str, code: str, folder: Path) -> None:
    script = folder / (name if name.endswith(".py") else "example.py")
    script.write_text(code, encoding="utf-8")
    done = subprocess.run([sys.executable, script.name], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "flags",
    [
        ["--oracle", "plugins:last_step", "--label.oracle_kwargs", "{margin = 0.1}"],
        ["--selector", "plugins:newest"],
        ["--reward.net", "plugins:wide"],
    ],
    ids=["oracle", "selector", "net"],
)
def test_the_plug_ins_work_in_a_run(flags: list[str], folder: Path) -> None:
    code = next(code for name, code in BLOCKS if name == "plugins.py")
    (folder / "plugins.py").write_text(code, encoding="utf-8")
    command = [sys.executable, "-m", "prefrl", "run", "pendulum", "--mode", "lockstep", *TINY, *flags]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_every_command_line_parses() -> None:
    lines = [m.group(1) for m in re.finditer(r"^\$ prefrl (.*?)\s*(?:#.*)?$", README, re.MULTILINE)]
    assert len(lines) >= 8
    for line in lines:
        build_parser().parse_args(line.split())


def test_every_switch_in_the_table_exists() -> None:
    parser = build_parser()
    table = "\n".join(line for line in README.splitlines() if line.startswith("|"))
    flags = set(re.findall(r"--[a-z][a-z0-9_.]*[a-z0-9]", table))
    assert len(flags) >= 10
    known = {option for action in parser._subparsers._group_actions for verb in action.choices.values()  # type: ignore[union-attr]
             for option in verb._option_string_actions}  # fmt: skip
    assert flags <= known
