"""The doctor: what is missing is named with what to type, and nothing that crashes takes it along."""

from __future__ import annotations

import importlib.metadata
import os
import sqlite3
import subprocess
import sys
import time
import tomllib
from pathlib import Path
from types import SimpleNamespace

import pytest

from prefrl import doctor
from prefrl.doctor import BACKENDS, Finding, Trial

ROOT = Path(doctor.__file__).parent.parent
FINE = Trial("")


def test_a_finding_is_one_line() -> None:
    assert str(Finding("torch", True, "torch 2.13.0")) == "ok  torch 2.13.0"
    missing = Finding("gl", False, "nothing draws", "sudo apt-get install -y libegl1")
    assert str(missing) == "MISSING  nothing draws: type  sudo apt-get install -y libegl1"


def test_the_dependencies_are_those_of_the_project() -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    assert sorted(f"{name}>={oldest}" for name, oldest in doctor.DEPENDENCIES.items()) == sorted(declared)


def test_this_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MUJOCO_GL", raising=False)
    begin = time.monotonic()
    findings = {finding.name: finding for finding in doctor.examine()}
    assert time.monotonic() - begin < 40  # seconds on an idle machine
    assert not list(tmp_path.iterdir())
    assert all("\n" not in str(finding) for finding in findings.values())
    for name in ("python", "torch", "torch works", "stable-baselines3 works", "mujoco works", "gymnasium works"):
        assert findings[name].ok, str(findings[name])
    assert {
        "sqlite",
        "runs folder",
        "file system",
        "rendering",
        "processors",
        "av works",
        "postgresql",
    } <= findings.keys()
    assert f"torch {importlib.metadata.version('torch')}" in str(findings["torch"])


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("import os; os.abort()", "crashed with SIGABRT"),
        ("import os; os.kill(os.getpid(), 11)", "crashed with SIGSEGV"),
        ("import not_there_at_all", "ModuleNotFoundError: No module named 'not_there_at_all'"),
        ("raise SystemExit(3)", "exit code 3"),
        ("raise ValueError('x' * 1000)", "ValueError: xxx"),
        ("while True: pass", "no answer within 1 s"),
    ],
)
def test_children_crash_alone(code: str, words: str) -> None:
    trial = doctor.try_out(code, limit_s=1 if "while" in code else 60)
    assert words in trial.error
    assert len(trial.error) < 200


def test_a_hanging_grandchild_does_not_hold_it_up() -> None:
    code = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import time; time.sleep(60)'])"
    begin = time.monotonic()
    assert "no answer" in doctor.try_out(code, limit_s=1.5).error
    assert time.monotonic() - begin < 20


def test_a_child_gets_its_backend_and_does_not_import_from_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "json.py").write_text("raise ImportError('the wrong one')")
    monkeypatch.setenv("PYOPENGL_PLATFORM", "wrong")
    code = "import json, os; print(os.environ['MUJOCO_GL'], 'PYOPENGL_PLATFORM' in os.environ)"
    assert doctor.try_out(code, "osmesa", 60) == Trial("", "osmesa False\n")


def test_missing_and_old_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    versions = {"torch": "2.5.9+cpu", "numpy": "2.10.0rc1"}

    def version(name: str) -> str:
        if name not in versions:
            raise importlib.metadata.PackageNotFoundError(name)
        return versions[name]

    monkeypatch.setattr(importlib.metadata, "version", version)
    old = doctor.find_distribution("torch", "2.6")
    assert str(old) == "MISSING  torch 2.5.9+cpu is older than 2.6: type  pip install 'torch>=2.6'"
    assert doctor.find_distribution("numpy", "2.9").ok
    gone = doctor.find_distribution("mujoco", "3.3")
    assert str(gone) == "MISSING  mujoco is not installed: type  pip install 'mujoco>=3.3'"
    optional = doctor.find_optional()
    assert all(finding.ok for finding in optional)
    assert all("optional" in finding.message and finding.mend for finding in optional)
    human = {finding.name: finding for finding in doctor.find_optional(doctor.HUMAN)}
    assert [name for name, finding in human.items() if not finding.ok] == ["av", "streamlit"]
    words = "av is not installed (needed for the clips that people compare): type  pip install 'prefrl[app]'"
    assert str(human["av"]) == f"MISSING  {words}"


def test_a_game_is_tried_and_half_of_its_extra_is_named() -> None:
    code, gl, _ = doctor.CHILDREN["ale-py"]
    played = doctor.find_import("ale-py", doctor.try_out(code, gl, 60))
    assert str(played) == "ok  Atari games play"
    without = doctor.try_out(f"import sys\nsys.modules['cv2'] = None\n{code}", gl, 60)
    failed = str(doctor.find_import("ale-py", without))
    assert failed.startswith("MISSING  ale-py does not work (ModuleNotFoundError: import of cv2 halted")
    assert failed.endswith("type  pip install 'prefrl[atari]'")


def test_what_is_not_installed_is_said_once(monkeypatch: pytest.MonkeyPatch) -> None:
    real = importlib.metadata.version

    def version(name: str) -> str:
        if name == "mujoco":
            raise importlib.metadata.PackageNotFoundError(name)
        return real(name)

    monkeypatch.setattr(importlib.metadata, "version", version)
    monkeypatch.setattr(doctor, "try_out", lambda code, gl: Trial("ModuleNotFoundError: mujoco"))
    findings = doctor.examine()
    assert [finding.message for finding in findings if "mujoco" in finding.name] == ["mujoco is not installed"]
    assert not [finding for finding in findings if finding.name == "rendering"]
    broken = next(finding for finding in findings if finding.name == "torch works")
    assert not broken.ok
    assert broken.mend.startswith("pip install")


def test_an_encoder_that_does_not_work_is_named() -> None:
    assert str(doctor.find_import("av", FINE)) == "ok  av encodes H.264"
    broken = doctor.find_import("av", Trial("UnknownCodecError: libx264"))
    assert not broken.ok
    assert "libx264" in broken.message
    assert broken.mend == "pip install --force-reinstall av"


def trials(*working: str) -> dict[str, Trial]:
    return {name: FINE if name in working else Trial(f"{name} fails") for name in BACKENDS}


def test_rendering() -> None:
    assert doctor.find_rendering(trials("osmesa", "glfw"), None).message.endswith("MUJOCO_GL=osmesa")
    none = doctor.find_rendering(trials(), None)
    assert not none.ok
    assert all(f"MUJOCO_GL={name}: {name} fails" in none.message for name in BACKENDS)
    assert none.mend == "sudo apt-get install -y libegl1 libgl1 libosmesa6"
    assert doctor.find_rendering(trials("egl", "glfw"), "GLFW").message.endswith("MUJOCO_GL=glfw")
    for chosen, words in (("glfw", "glfw fails"), ("nonsense", "none of egl, osmesa, glfw")):
        wrong = doctor.find_rendering(trials("egl"), chosen)
        assert not wrong.ok
        assert words in wrong.message
        assert wrong.mend == "export MUJOCO_GL=egl"


def test_old_python_and_sqlite(monkeypatch: pytest.MonkeyPatch) -> None:
    assert doctor.find_python().ok
    assert doctor.find_sqlite().ok
    monkeypatch.setattr(sqlite3, "sqlite_version_info", (3, 34, 1))
    assert not doctor.find_sqlite().ok
    monkeypatch.setattr(sys, "version_info", (3, 10, 4))
    assert doctor.find_python().message == "Python 3.10.4 is older than 3.11"


def test_the_folder_of_the_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert doctor.find_disk(tmp_path / "not" / "there").ok
    (tmp_path / "runs").write_text("a file")
    assert not doctor.find_disk(tmp_path / "runs").ok
    assert [path.name for path in tmp_path.iterdir()] == ["runs"]
    usage = SimpleNamespace(free=2**20)
    monkeypatch.setattr(doctor.shutil, "disk_usage", lambda place: usage)
    assert "has only 0.00 GiB free" in doctor.find_disk(tmp_path).message
    refuse = PermissionError(13, "Permission denied")

    def no_file(**_: object) -> None:
        raise refuse

    monkeypatch.setattr(doctor.tempfile, "NamedTemporaryFile", no_file)
    finding = doctor.find_disk(tmp_path)
    assert not finding.ok
    assert "is not writable (Permission denied)" in finding.message


def test_network_file_systems(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "prefrl.store.urls.file_system", lambda path: "ext4" if str(path).startswith("/var") else "nfs4"
    )
    finding = doctor.find_file_system(None)
    assert not finding.ok
    assert "network file system (nfs4)" in finding.message
    assert doctor.find_file_system(finding.mend.partition("=")[2]).ok
    assert doctor.find_file_system("postgresql://me@host/runs").ok
    monkeypatch.setitem(sys.modules, "prefrl.store.urls", None)  # as where sqlalchemy is missing
    assert doctor.find_file_system(None).ok


def test_optional_programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(doctor, "glob", lambda pattern: [])
    assert doctor.find_postgresql().ok
    assert "optional" in doctor.find_postgresql().message


def test_processors() -> None:
    assert "no CUDA device (optional)" in doctor.find_processors(Trial("", "devices: \n")).message
    assert "CUDA: H200, H200" in doctor.find_processors(Trial("", "devices: H200, H200\n")).message
    assert "no CUDA device" in doctor.find_processors(Trial("crashed with SIGSEGV")).message


def test_only_the_standard_library_is_imported() -> None:
    code = (
        "import sys, prefrl.doctor; print([m for m in ('numpy', 'torch', 'sqlalchemy', 'mujoco') if m in sys.modules])"
    )
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=env)
    assert done.stdout == "[]\n"


def test_physics_does_not_depend_on_drawing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MUJOCO_GL", "nonsense")
    code, gl, _ = doctor.CHILDREN["mujoco"]
    assert doctor.try_out(code, gl, 60) == FINE
    assert "nonsense" in doctor.try_out(code, None, 60).error
