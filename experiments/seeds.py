"""Run one setting over several seeds, side by side, and keep one line of results for each.

    python -m experiments.seeds --out results/pendulum --seeds 0-9 --jobs 2 -- pendulum --steps 60000

Everything after ``--`` goes to ``prefrl run``. Each seed has a database of its own in the output folder; a
seed that is in ``results.jsonl`` is not run again, and one that was interrupted is resumed.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

from experiments.cells import commit
from prefrl.report.facts import read_facts
from prefrl.store.engine import Database
from prefrl.store.metrics import read_metrics
from prefrl.store.runs import get_run, list_runs


def run_seed(out: Path, seed: int, flags: list[str], mode: str) -> dict[str, Any]:
    """Run (or resume) one seed and return its results.

    Raises:
        RuntimeError: The run failed; holds what it said.
    """
    path = out / f"seed-{seed}.db"
    url, name = f"sqlite:///{path.resolve()}", f"seed-{seed}"
    common = ["--db", url, "--mode", mode, "--folder", str(out / "logs"), "--json"]
    state = _state(url, name) if path.exists() else None
    known = state is not None
    verb = ["resume", name] if known else ["run", *flags, "--seed", str(seed), "--name", name]
    if state == "done":  # ended, but its line was never written
        verb, common = ["status", name], ["--db", url, "--json"]
    started, cpu = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [sys.executable, "-m", "prefrl", *verb, *common],
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"seed {seed} failed with exit code {done.returncode}:\n{done.stderr[-2000:]}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    status = json.loads(done.stdout[done.stdout.index("{") :])
    return {
        "seed": seed,
        "flags": flags,
        "mode": mode,
        "resumed": known,
        "true_return": status["metrics"]["true_return"],
        "env_steps": status["env_steps"],
        "comparisons": status["comparisons"],
        "curve": curve(url, name, "true_return"),
        "oob_accuracy": curve(url, name, "oob_accuracy"),
        "correlation": correlations(url, name),
        "wall_s": round(time.monotonic() - started, 1),
        "cpu_s_all_jobs": round(after.ru_utime + after.ru_stime - cpu.ru_utime - cpu.ru_stime, 1),
        "commit": commit(),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}",
    }


def _state(url: str, name: str) -> str | None:
    with Database.open(url, readonly=True) as db:
        return next((run.state for run in list_runs(db) if run.name == name), None)


def curve(url: str, run_name: str, metric: str) -> list[tuple[int, float]]:
    """A metric over agent steps."""
    with Database.open(url, readonly=True) as db:
        rows = read_metrics(db, get_run(db, run_name).id, [metric])
    return [(row.env_steps, round(row.value, 3)) for row in rows]


def correlations(url: str, run_name: str) -> list[tuple[int, float]]:
    """Rank correlation of learned and true segment returns over agent steps, for versions that have weights."""
    with Database.open(url, readonly=True) as db:
        quality = read_facts(db, run_name).quality
    return [(a.env_steps, round(a.correlation, 3)) for a in quality.agreements] if quality else []


def parse_seeds(text: str) -> list[int]:
    """``0-9`` or ``0,3,5``."""
    first, dash, last = text.partition("-")
    return list(range(int(first), int(last) + 1)) if dash else [int(s) for s in text.split(",")]


def main() -> None:
    """Read the command line, run what is missing, print a line for each seed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seeds", type=parse_seeds, required=True)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--mode", choices=("lockstep", "async"), default="lockstep")
    parser.add_argument("flags", nargs=argparse.REMAINDER)
    args = parser.parse_args()
    flags = [f for f in args.flags if f != "--"]
    args.out.mkdir(parents=True, exist_ok=True)
    table = args.out / "results.jsonl"
    rows = [json.loads(line) for line in table.read_text().splitlines()] if table.exists() else []
    other = [r for r in rows if r["flags"] != flags or r["mode"] != args.mode]
    if other:
        sys.exit(f"{table} holds results of {other[0]['mode']} {other[0]['flags']}; choose another --out")
    missing = [s for s in args.seeds if s not in {r["seed"] for r in rows}]
    with ThreadPoolExecutor(args.jobs) as pool, table.open("a") as file:
        for future in as_completed([pool.submit(run_seed, args.out, seed, flags, args.mode) for seed in missing]):
            row = future.result()
            file.write(json.dumps(row) + "\n")
            file.flush()
            rows.append(row)
            print(f"seed {row['seed']}: true return {row['true_return']:.2f} in {row['wall_s']:.0f} s", flush=True)
    returns = [r["true_return"] for r in rows]
    print(f"mean {sum(returns) / len(returns):.2f} over {len(returns)} seeds: {[round(x, 1) for x in sorted(returns)]}")


if __name__ == "__main__":
    main()
