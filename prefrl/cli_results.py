"""The verbs about what a run has left: its comparisons, its policies and its numbers."""

from __future__ import annotations

import argparse
import functools
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from prefrl.flags import SHORT_OF_FIT, add_settings, settings_of_fit, with_flags
from prefrl.parsing import add_verb, open_database
from prefrl.run.hints import typed


def add_result_verbs(verbs: Any) -> None:
    """Add fit, eval, report, export and import."""
    fit = add_verb(verbs, "fit", "fit a reward afresh to all comparisons of a run, as the start of a new run", _fit)
    fit.add_argument("run", help="the run with the comparisons, which is only read; its settings hold but for flags")
    fit.add_argument("--name", help="name of the new run (default: RUN-fit)")
    fit.add_argument("--json", action="store_true", help="print JSON")
    add_settings(fit, settings_of_fit(), SHORT_OF_FIT)

    evaluate = add_verb(verbs, "eval", "true return of a stored policy", _eval)
    evaluate.add_argument("name")
    evaluate.add_argument("--checkpoint", type=int, metavar="ID", help="which checkpoint (default: the newest)")
    evaluate.add_argument("--episodes", type=int, default=10)
    evaluate.add_argument("--stochastic", action="store_true", help="sample actions instead of the most likely ones")
    evaluate.add_argument("--list", action="store_true", help="list the checkpoints and stop")
    evaluate.add_argument("--json", action="store_true", help="print JSON")

    report = add_verb(verbs, "report", "one self-contained HTML page with plots", _report)
    report.add_argument("name")
    report.add_argument("--out", type=Path, metavar="FILE", help="default: runs/NAME/report.html")

    export = add_verb(verbs, "export", "comparisons with their segments to a file", _export)
    export.add_argument("name")
    export.add_argument("file", type=Path, help="ends in .parquet, .jsonl, or .csv (without the segments)")

    imports = add_verb(verbs, "import", "comparisons with their segments from a file, all or nothing", _import)
    imports.add_argument("name")
    imports.add_argument("file", type=Path, help="ends in .parquet or .jsonl")
    imports.add_argument(
        "--labels", choices=("mu", "sign", "index"), help="how the file's labels are encoded, where that is not clear"
    )
    imports.add_argument("--dry-run", action="store_true", help="check every row and write nothing")


def _fit(args: argparse.Namespace) -> int:
    from prefrl.run.frozen import describe, facts, fit_run

    def change(config: Mapping[str, Any]) -> dict[str, Any]:
        return with_flags(config, args, settings_of_fit(), args.run)

    tell = functools.partial(print, "prefrl:", file=sys.stderr)
    db = open_database(args)
    try:
        run, reward = fit_run(db, args.run, args.name, change, tell)
    finally:
        db.close()
    if args.json:
        print(json.dumps(facts(run, reward), indent=2))
        return 0
    name = typed(run.name, args.db, db.url)
    print(describe(run, reward))
    print(f"Next:\n  prefrl resume {name}     to train a policy on it")
    print(f"  prefrl run TASK --reward {name}     to train others")
    return 0


def _eval(args: argparse.Namespace) -> int:
    from prefrl.evaluate import describe, evaluate
    from prefrl.store.checkpoints import list_checkpoints
    from prefrl.store.folder import refuse_clips
    from prefrl.store.runs import get_run

    db = open_database(args, readonly=True)
    try:
        if args.list:
            refuse_clips(run := get_run(db, args.name), "evaluate")
            for stored in list_checkpoints(db, run.id):
                print(f"{stored.id:6d}  {stored.env_steps:10,} steps  sha256 {stored.sha256[:12]}")
            return 0
        result = evaluate(db, args.name, args.checkpoint, args.episodes, deterministic=not args.stochastic)
    finally:
        db.close()
    print(json.dumps(result.to_dict(), indent=2) if args.json else describe(result))
    return 0


def _report(args: argparse.Namespace) -> int:
    from prefrl.report import write_report

    db = open_database(args, readonly=True)
    try:
        path = write_report(db, args.name, args.out or Path("runs") / args.name / "report.html")
    finally:
        db.close()
    print(path)
    return 0


def _export(args: argparse.Namespace) -> int:
    from prefrl.transfer import export_comparisons

    db = open_database(args, readonly=True)
    try:
        n = export_comparisons(db, args.name, args.file)
    finally:
        db.close()
    print(f"{n} comparisons written to {args.file}")
    return 0


def _import(args: argparse.Namespace) -> int:
    from prefrl.run.status import read_status
    from prefrl.run.view import of_budget
    from prefrl.transfer import import_comparisons

    db = open_database(args)
    try:
        n = import_comparisons(db, args.name, args.file, labels=args.labels, dry_run=args.dry_run)
        if args.dry_run:
            print(f"{n} comparisons are valid; nothing was written")
            return 0
        status = read_status(db, args.name)
    finally:
        db.close()
    now = f"; run {args.name} now has {of_budget(status)}" if status.budget else ""  # none on the true reward
    print(f"{n or 'no'} comparisons imported{now}")
    if status.origin:
        name = typed(args.name, args.db, db.url)
        print(f"prefrl: the run's reward stays as it is; `prefrl fit {name}` fits a new one to them", file=sys.stderr)
    elif not status.budget:
        print("prefrl: the run learns from the true reward: nothing is fitted to them", file=sys.stderr)
    return 0
