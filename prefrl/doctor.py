"""What is missing on this machine, and what to type: ``prefrl doctor``.

Whatever can crash or hang (native libraries, OpenGL) is tried in child processes with a time limit, all side by
side. Only the standard library is imported here, so that this runs where everything else is missing. Nothing is
written but a probe file in the folder of the runs, which is removed again.
"""

from __future__ import annotations

import importlib.metadata
import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from glob import glob
from pathlib import Path

LIMIT_S = 13.0  # for each child; they run side by side
MIN_FREE_GIB = 1.0
RUNS = Path("runs")
SQLITE = "sqlite:///"
# distribution -> oldest version; a test holds it equal to pyproject.toml
DEPENDENCIES = {
    "alembic": "1.18",
    "gymnasium": "1.2",
    "imageio": "2.34",
    "matplotlib": "3.10",
    "mujoco": "3.3",
    "numpy": "2.0",
    "pyarrow": "20",
    "rich": "14",
    "safetensors": "0.6",
    "sb3-contrib": "2.7",
    "sqlalchemy": "2.0.40",
    "stable-baselines3": "2.7",
    "tensorboard": "2.19",
    "torch": "2.6",
}
APP = "pip install 'prefrl[app]'"
ATARI = "pip install 'prefrl[atari]'"
HUMAN = ("av", "streamlit")  # what people need who compare clips
OPTIONAL = {
    "av": ("the clips that people compare", APP),
    "streamlit": ("the labeling page", APP),
    "ale-py": ("Atari games", ATARI),
    "psycopg": ("PostgreSQL", "pip install 'prefrl[postgres]'"),
}
GL_PACKAGES = "sudo apt-get install -y libegl1 libgl1 libosmesa6"
BACKENDS = ("egl", "osmesa", "glfw")

MODEL = (
    "<mujoco><worldbody><light pos='0 0 3'/><body pos='0 0 1'><freejoint/><geom size='.1'/></body></worldbody></mujoco>"
)
PHYSICS = f"""
import mujoco
model = mujoco.MjModel.from_xml_string("{MODEL}")
data = mujoco.MjData(model)
for _ in range(100):
    mujoco.mj_step(model, data)
assert 0 < data.qpos[2] < 1, f"a falling ball is at height {{data.qpos[2]}}"
"""
RENDER = f"""
import mujoco
model = mujoco.MjModel.from_xml_string("{MODEL}")
data = mujoco.MjData(model)
mujoco.mj_forward(model, data)
renderer = mujoco.Renderer(model, 64, 64)
renderer.update_scene(data)
frame = renderer.render()
renderer.close()
assert frame.shape == (64, 64, 3) and frame.any(), "the frame is black"
"""
VIDEO = """
import av
from fractions import Fraction
codec = av.CodecContext.create("libx264", "w")
codec.width, codec.height, codec.pix_fmt, codec.time_base = 64, 64, "yuv420p", Fraction(1, 30)
picture = av.VideoFrame(64, 64, "yuv420p")
picture.pts, picture.time_base = 0, codec.time_base
assert sum(len(bytes(packet)) for packet in [*codec.encode(picture), *codec.encode(None)]), "the clip is empty"
"""
GAME = """
import ale_py, cv2
from ale_py.roms import get_rom_path
ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
game = ale_py.ALEInterface()
game.loadROM(get_rom_path("pong"))
game.act(ale_py.Action.NOOP)
assert cv2.resize(game.getScreenGrayscale(), (84, 84)).any(), "the screen is black"
"""
TORCH = """
import torch
assert float((torch.ones(8, 8) @ torch.ones(8, 8)).sum()) == 512
names = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())] if torch.cuda.is_available() else []
print("devices: " + ", ".join(names))
"""
# name -> (code, MUJOCO_GL of the child or None to leave it, what to type where it fails)
CHILDREN: dict[str, tuple[str, str | None, str]] = {
    "torch": (TORCH, None, "pip install --force-reinstall torch"),
    "stable-baselines3": (
        "import stable_baselines3, sb3_contrib",
        None,
        "pip install --force-reinstall stable-baselines3 sb3-contrib",
    ),
    "mujoco": (PHYSICS, "disabled", "pip install --force-reinstall mujoco"),
    "gymnasium": ("import gymnasium", None, "pip install --force-reinstall gymnasium"),
    "av": (VIDEO, None, "pip install --force-reinstall av"),
    "ale-py": (GAME, None, ATARI),
    **{f"render {name}": (RENDER, name, GL_PACKAGES) for name in BACKENDS},
}


@dataclass(frozen=True)
class Finding:
    """One line of the examination.

    Attributes:
        name: What was looked at.
        ok: False where prefrl cannot work well without mending; something optional never is.
        message: What was found.
        mend: What to type, or "".
    """

    name: str
    ok: bool
    message: str
    mend: str = ""

    def __str__(self) -> str:
        return f"{'ok' if self.ok else 'MISSING'}  {self.message}" + (f": type  {self.mend}" if self.mend else "")


@dataclass(frozen=True)
class Trial:
    """How a child process ended: ``error`` is "" where all went well."""

    error: str
    output: str = ""


def examine(*, human: bool = False) -> list[Finding]:
    """Looks at everything; takes seconds.

    Args:
        human: Whether people will compare clips here: what they need is then not optional.
    """
    with ThreadPoolExecutor(len(CHILDREN)) as pool:
        trials = {name: pool.submit(try_out, code, gl) for name, (code, gl, _) in CHILDREN.items()}
        findings = [find_python(), *(find_distribution(*wanted) for wanted in DEPENDENCIES.items())]
        findings += [
            find_sqlite(),
            find_disk(RUNS),
            find_file_system(os.environ.get("PREFRL_DB")),
            *find_optional(HUMAN if human else ()),
            find_postgresql(),
        ]
        found = {name: trial.result() for name, trial in trials.items()}
    installed = {finding.name for finding in findings if finding.ok and _version(finding.name) is not None}
    # what is not there at all has been said
    ran = {name: trial for name, trial in found.items() if name.removeprefix("render ") in (*installed, *BACKENDS)}
    findings += [find_import(name, trial) for name, trial in ran.items() if not name.startswith("render ")]
    if "mujoco" in installed:
        rendering = {name: found[f"render {name}"] for name in BACKENDS}
        findings.append(find_rendering(rendering, os.environ.get("MUJOCO_GL")))
    return [*findings, find_processors(found["torch"])]


def find_python() -> Finding:
    """Python 3.11 or newer."""
    version = ".".join(map(str, sys.version_info[:3]))
    ok = sys.version_info >= (3, 11)
    return Finding(
        "python",
        ok,
        f"Python {version}" + ("" if ok else " is older than 3.11"),
        "" if ok else "python3.11 -m venv .venv",
    )


def find_distribution(name: str, oldest: str) -> Finding:
    """A package that prefrl needs, by its metadata only."""
    version = _version(name)
    mend = f"pip install '{name}>={oldest}'"
    if version is None:
        return Finding(name, False, f"{name} is not installed", mend)
    if _release(version) < _release(oldest):
        return Finding(name, False, f"{name} {version} is older than {oldest}", mend)
    return Finding(name, True, f"{name} {version}")


def find_optional(needed: Sequence[str] = ()) -> list[Finding]:
    """Packages that only some uses need; ``needed`` names those that this one does."""
    findings = []
    for name, (purpose, mend) in OPTIONAL.items():
        version = _version(name)
        if version is None:
            how = "needed" if name in needed else "optional"
            findings.append(Finding(name, name not in needed, f"{name} is not installed ({how} for {purpose})", mend))
        else:
            findings.append(Finding(name, True, f"{name} {version}"))
    return findings


def find_import(name: str, trial: Trial) -> Finding:
    """Whether a package does in a child process what it is for."""
    doing = {
        "mujoco": "MuJoCo physics steps",
        "torch": "torch computes",
        "av": "av encodes H.264",
        "ale-py": "Atari games play",
    }.get(name, f"{name} can be imported")
    if trial.error:
        return Finding(f"{name} works", False, f"{name} does not work ({trial.error})", CHILDREN[name][2])
    return Finding(f"{name} works", True, doing)


def find_rendering(trials: dict[str, Trial], chosen: str | None) -> Finding:
    """The first backend that draws a frame.

    Args:
        trials: By the value of MUJOCO_GL, in order of preference.
        chosen: MUJOCO_GL as it is set now, or None.
    """
    working = [name for name, trial in trials.items() if not trial.error]
    if not working:
        tried = "; ".join(f"MUJOCO_GL={name}: {trial.error}" for name, trial in trials.items())
        return Finding("rendering", False, f"no way to draw clips works ({tried})", GL_PACKAGES)
    if chosen and chosen.lower() not in working:
        why = trials[chosen.lower()].error if chosen.lower() in trials else "which is none of " + ", ".join(BACKENDS)
        message = f"MUJOCO_GL is set to {chosen!r} ({why}), but {working[0]} works"
        return Finding("rendering", False, message, f"export MUJOCO_GL={working[0]}")
    return Finding("rendering", True, f"clips can be drawn with MUJOCO_GL={(chosen or working[0]).lower()}")


def find_sqlite() -> Finding:
    """SQLite with RETURNING, which leases need."""
    version = sqlite3.sqlite_version
    if sqlite3.sqlite_version_info < (3, 35):
        mend = "sudo apt-get install -y libsqlite3-0"
        return Finding("sqlite", False, f"SQLite {version} is older than 3.35", mend)
    return Finding("sqlite", True, f"SQLite {version}")


def find_postgresql() -> Finding:
    """A PostgreSQL server on this machine, which only many people or machines need."""
    binary = shutil.which("postgres") or next(
        iter(sorted(glob("/usr/lib/postgresql/*/bin/postgres"), reverse=True)), None
    )
    if binary is None:
        message = "no PostgreSQL server on this machine (optional, for many people or machines)"
        return Finding("postgresql", True, message, "sudo apt-get install -y postgresql")
    return Finding("postgresql", True, f"PostgreSQL server {binary}")


def find_disk(folder: Path) -> Finding:
    """Whether runs can be stored, and how much."""
    name, place = "runs folder", _existing(folder)
    if not place.is_dir():
        return Finding(
            name, False, f"{place} is a file, but runs go into a folder of this name", f"mv {place} {place}.old"
        )
    try:
        with tempfile.NamedTemporaryFile(prefix=".prefrl-doctor-", dir=place) as probe:
            probe.write(b"x" * 4096)
            probe.flush()
        free = shutil.disk_usage(place).free / 2**30
    except OSError as error:
        reason = error.strerror or str(error)
        return Finding(
            name, False, f"{place.resolve()} is not writable ({reason})", f"sudo chown $USER {place.resolve()}"
        )
    if free < MIN_FREE_GIB:
        message = f"{place.resolve()} has only {free:.2f} GiB free, {MIN_FREE_GIB:g} are wanted"
        return Finding(name, False, message, f"du -xh --max-depth=1 {place.resolve()} | sort -h")
    return Finding(name, True, f"{place.resolve()} is writable, {free:,.1f} GiB free")


def find_file_system(url: str | None) -> Finding:
    """SQLite damages databases on network file systems.

    Args:
        url: The database that runs use: PREFRL_DB, or None for one in the folder of the runs.
    """
    name = "file system"
    if url is not None and not url.startswith(SQLITE):
        return Finding(name, True, "the database is not a file (PREFRL_DB), so any file system will do")
    folder = (Path(url.removeprefix(SQLITE)).expanduser().parent if url else RUNS).absolute()
    try:
        from prefrl.store.urls import NETWORK_FILE_SYSTEMS, file_system
    except ImportError as error:
        return Finding(name, True, f"the file system was not looked at ({error})")
    kind = file_system(folder)
    if kind in NETWORK_FILE_SYSTEMS:
        message = f"{folder} is on a network file system ({kind}), where SQLite damages databases; choose a local disk"
        return Finding(name, False, message, f"export PREFRL_DB={SQLITE}/var/tmp/prefrl.db")
    return Finding(name, True, f"databases go on a local disk ({kind})" if kind else "file system unknown")


def find_processors(torch: Trial) -> Finding:
    """What computes; a GPU is optional."""
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    devices = torch.output.rpartition("devices:")[2].strip()
    cuda = f"CUDA: {devices}" if devices else "no CUDA device (optional)"
    return Finding("processors", True, f"{count} CPU{'s' if count != 1 else ''}, {cuda}")


def try_out(code: str, gl: str | None = None, limit_s: float = LIMIT_S) -> Trial:
    """Runs Python code in a child of its own, whose crash or hang stays there.

    Args:
        code: The program.
        gl: MUJOCO_GL for it; None leaves what is set.
        limit_s: After this it is killed.
    """
    # no caches: bytecode, compiled shaders
    env = os.environ | {"MESA_SHADER_CACHE_DISABLE": "true", "__GL_SHADER_DISK_CACHE": "0"}
    if gl is not None:
        env["MUJOCO_GL"] = gl
        env.pop("PYOPENGL_PLATFORM", None)
    return _run([sys.executable, "-B", "-P", "-c", code], env, limit_s)


def _run(command: list[str], env: dict[str, str], limit_s: float = LIMIT_S) -> Trial:
    try:
        child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            env=env,
            start_new_session=True,
        )
    except OSError as error:
        return Trial(f"cannot be started: {error}")
    with child:
        try:
            out, err = child.communicate(timeout=limit_s)
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, signal.SIGKILL)
            return Trial(f"no answer within {limit_s:g} s; on a busy machine try again")
    if child.returncode == 0:
        return Trial("", out)
    return Trial(_reason(child.returncode, err))


def _reason(code: int, err: str) -> str:
    if code < 0:
        known = {int(s): s.name for s in signal.Signals}
        return f"crashed with {known.get(-code, f'signal {-code}')}"
    # interpreters may say more after the exception; the error is the last line that looks like one
    lines = [line.strip() for line in err.splitlines() if line.strip()]
    errors = [line for line in lines if re.match(r"[\w.]+(Error|Exception|Exit)\b", line)]
    return _shorten((errors or lines or [f"exit code {code}"])[0 if errors else -1])


def _shorten(text: str) -> str:
    return text if len(text) <= 160 else text[:159] + "…"


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _release(version: str) -> tuple[int, ...]:
    numbers = re.match(r"\d+(\.\d+)*", version)
    return tuple(int(n) for n in numbers[0].split(".")) if numbers else ()


def _existing(folder: Path) -> Path:
    """The folder, or the one that it would be made in."""
    places: Iterable[Path] = (folder, *folder.absolute().parents)
    return next(place for place in places if place.exists())
