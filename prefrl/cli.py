"""The command line. Every verb is a thin layer over a function of the library."""

from __future__ import annotations

import argparse
import functools
import json
import os
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from prefrl import __version__
from prefrl.cli_results import add_result_verbs
from prefrl.errors import ConfigError, FencedError, PrefrlError, StoreError
from prefrl.flags import add_settings, config_from, given_from
from prefrl.parsing import Parser, add_verb, open_database, port, whole
from prefrl.run.hints import typed
from prefrl.settings import from_dict, settings

if TYPE_CHECKING:
    from prefrl.run.people import PageOptions
    from prefrl.store.engine import Database
    from prefrl.store.runs import Run

MODES = ("async", "lockstep")


def main(argv: Sequence[str] | None = None) -> None:
    """Parse the command line, do it, and exit: 0 well, 2 for an error of the user, 130 after Ctrl-C."""
    if not {"", here := os.path.abspath(os.curdir)} & set(sys.path):
        sys.path.insert(0, here)  # plug-ins beside the person, as with `python -m`, which starts the roles
    args = build_parser().parse_args(argv)
    try:
        code = args.do(args)
    except PrefrlError as error:
        print(f"prefrl: {error}", file=sys.stderr)
        code = 2
    except BrokenPipeError:
        sys.stderr.close()
        code = 1
    except KeyboardInterrupt:
        code = 130
    sys.exit(code)


def build_parser() -> argparse.ArgumentParser:
    """All verbs and their flags."""
    parser = Parser(
        prog="prefrl", description="Teach agents by human preference: compare short clips, and an agent learns."
    )
    parser.add_argument("--version", action="version", version=f"prefrl {__version__}")
    verbs = parser.add_subparsers(title="verbs", metavar="VERB", required=True)

    run = add_verb(verbs, "run", "create a run and start it", _run)
    run.add_argument("task", nargs="?", help="task or Gymnasium id; the same as --env.id")
    run.add_argument("--name", help="name of the run (default: task and seed)")
    run.add_argument("--config", type=Path, metavar="FILE", help="TOML file with settings; flags win over it")
    run.add_argument("--human", action="store_true", help="people compare the clips, on a page that this opens")
    run.add_argument("--create-only", action="store_true", help="do not start it: to import comparisons first")
    _add_start_flags(run)
    add_settings(run, settings())

    resume = add_verb(verbs, "resume", "go on with a run after any kind of end", _resume)
    resume.add_argument("name")
    resume.add_argument("--steps", type=whole, help="new total of agent steps, to train on beyond the old one")
    resume.add_argument("--labels", type=whole, help="new total of comparisons")
    resume.add_argument("--human", action="store_true", help="open the labeling page of a run with people, too")
    _add_start_flags(resume)

    worker = add_verb(verbs, "worker", "be one role of a run, on this or another machine", _worker)
    worker.add_argument("name")
    worker.add_argument("--role", required=True, help="rollout, reward, oracle or renderer")
    worker.add_argument("--parent", type=int, help=argparse.SUPPRESS)
    worker.add_argument("--log-dir", help="folder for TensorBoard files")

    label = add_verb(verbs, "label", "open the page on which people compare the clips of a run, or of a folder", _label)
    label.add_argument("name", nargs="?", help="a run; or else --clips")
    label.add_argument("--clips", type=Path, metavar="FOLDER", help="compare the videos in FOLDER; nothing is trained")
    label.add_argument("--name", dest="called", help="with --clips: name of the run (default: the folder's)")
    label.add_argument("--labels", type=whole, help="with --clips: comparisons wanted (default: about 10 a clip)")
    label.add_argument("--parent", type=int, help=argparse.SUPPRESS)
    _add_page_flags(label)

    status = add_verb(verbs, "status", "what a run, or every run, is doing", _status)
    status.add_argument("name", nargs="?")
    status.add_argument("--json", action="store_true", help="print JSON")

    add_result_verbs(verbs)
    _add_machine_verbs(verbs)
    return parser


def _add_machine_verbs(verbs: Any) -> None:
    db = add_verb(verbs, "db", "check or upgrade the database", _db)
    db.add_argument("action", choices=("check", "upgrade"))

    doctor = add_verb(verbs, "doctor", "find what is missing on this machine and say what to type", _doctor)
    doctor.add_argument("--human", action="store_true", help="people will label here: what that needs is not optional")


def _add_start_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--mode", choices=MODES, default="async", help="processes, or a single reproducible one")
    parser.add_argument("--folder", type=Path, default=Path("runs"), help="where logs go (default: runs)")
    parser.add_argument("--json", action="store_true", help="print the final status as JSON")
    _add_page_flags(parser)


def _add_page_flags(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("labeling page")
    group.add_argument("--host", default="127.0.0.1", help="address to listen on (default: this machine only)")
    group.add_argument("--port", type=port, help="default: the first one from 8501 on that is free")
    group.add_argument("--no-browser", action="store_true", help="print the address instead of opening a browser")


def _run(args: argparse.Namespace) -> int:
    from prefrl.run.create import check_folder, check_start, make_folder, new_run, prepare
    from prefrl.run.frozen import prepare_frozen
    from prefrl.store.engine import Database
    from prefrl.store.runs import check_free, check_name, free_name

    if args.name is not None:
        check_name(args.name)
    check_start(args.mode, config := config_from(args))
    check_folder(args.folder / (args.name or ""))
    page = _page(args) if args.human else None
    reward = None
    if config.reward.source == "frozen":
        with open_database(args, readonly=True) as db:
            config, versions, reward = prepare_frozen(db, config, given_from(args).get("reward", {}))
    else:
        config, versions = prepare(config)
    db = Database.create(args.db)
    try:
        name = args.name or free_name(db, f"{config.env.id.replace('/', '-').replace(':', '-')}-{config.seed}")
        check_free(db, name)
        if not args.create_only:
            make_folder(args.folder / name)
        run = new_run(db, name, config, versions, reward)
        if args.create_only:
            at = typed(name, args.db, db.url)
            print(f"run {name} is created. Next:")
            if config.reward.source == "learned":
                print(f"  prefrl import {at} FILE     to add comparisons")
            print(f"  prefrl resume {at}     to start it")
            return 0
        return _start(args, db, run, page)
    finally:
        db.close()


def _resume(args: argparse.Namespace) -> int:
    from prefrl.run.create import check_folder, check_resume, check_versions, extend
    from prefrl.run.people import refuse_unasked
    from prefrl.store.runs import get_run

    db = open_database(args)
    try:
        run = get_run(db, args.name)
        check_resume(db, run, args.mode, args.steps)
        check_folder(args.folder / run.name)
        config = from_dict(run.config)
        oracle = config.label.oracle
        if args.human or args.labels is not None:
            refuse_unasked(run)
        if args.human and oracle != "none":
            raise ConfigError(f"run {run.name!r} has the oracle {oracle!r} as annotator; resume it without --human")
        page = _page(args) if args.human else None
        for change in check_versions(db, run):
            print(f"prefrl: {change}", file=sys.stderr)
        if args.steps is not None or args.labels is not None:
            run = extend(db, run, args.steps, args.labels)
        if page is None and oracle == "none" and config.reward.source == "learned":
            where = typed(run.name, args.db, db.url)
            print(f"prefrl: people answer this run, on the page that `prefrl label {where}` opens", file=sys.stderr)
        return _start(args, db, run, page)
    finally:
        db.close()


def _page(args: argparse.Namespace) -> PageOptions:
    """Where the labeling page will be served; refuses what cannot work before anything else is done."""
    from prefrl.run.people import PageOptions, can_show, check_page, free_port

    check_page()
    free_port(args.host, args.port)
    return PageOptions(args.host, args.port, not args.no_browser and can_show())


def _start(args: argparse.Namespace, db: Database, run: Run, page: PageOptions | None) -> int:
    from prefrl.envs.tasks import has_true_reward
    from prefrl.run.start import start

    done, status = start(db, args.db, run, args.mode, args.folder / run.name, to_stderr=args.json, page=page)
    if args.json:
        print(json.dumps(status.to_dict(), indent=2))
    else:
        name = typed(run.name, args.db, db.url)
        print(f"run {run.name} {'is done' if done else 'stopped'} after {status.env_steps:,} steps. Next:")
        if not done:
            print(f"  prefrl resume {name}{' --human' if args.human else ''}     to go on")
        print(f"  prefrl report {name}     for plots")
        if has_true_reward(status.task):
            print(f"  prefrl eval {name}       for its true return")
    return 0 if done else 130


def _worker(args: argparse.Namespace) -> int:
    from prefrl.run.worker import FENCED, UNREACHABLE, work

    try:
        tell = functools.partial(print, "prefrl:", file=sys.stderr)
        return work(args.db, args.name, args.role, args.parent, args.log_dir, tell)
    except StoreError as error:
        print(f"prefrl: {error}", file=sys.stderr)
        if isinstance(error, FencedError):
            return FENCED
        return 2 if args.parent is None else UNREACHABLE  # a supervisor tries again, a person reads it
    except PrefrlError as error:
        if args.parent is not None and error.__cause__ is not None:  # the log keeps the whole story
            traceback.print_exception(error.__cause__)
        raise


def _label(args: argparse.Namespace) -> int:
    from prefrl.run.people import PageOptions, can_show, check_labeling, check_what, serve_page

    check_what(args.name, args.clips, called=args.called, labels=args.labels)
    name = args.name
    if args.clips is not None:
        from prefrl.run.folder import open_folder

        _page(args)
        tell = functools.partial(print, "prefrl:", file=sys.stderr)
        name = open_folder(args.db, args.clips, args.called, args.labels, tell=tell).name
    db = open_database(args, readonly=True)
    try:
        hint = check_labeling(db, name)
        if args.clips is not None:
            at = typed(name, args.db, db.url)
            print(f"The result, at any time:\n  prefrl status {at}\n  prefrl export {at} FILE.csv", flush=True)
    finally:
        db.close()
    if hint and args.parent is None:
        print(f"prefrl: {hint}", file=sys.stderr)
    browser = not args.no_browser and (args.parent is not None or can_show())
    serve_page(args.db, name, PageOptions(args.host, args.port, browser), args.parent)
    return 0


def _status(args: argparse.Namespace) -> int:
    from prefrl.run.status import list_statuses, read_status

    db = open_database(args, readonly=True)
    try:
        if args.name is None:
            statuses = list_statuses(db)
            if args.json:
                print(json.dumps([s.to_dict() for s in statuses], indent=2))
            else:
                from prefrl.run.view import line, silence

                rows = [f"{s.run} ({'clips' if s.is_clips else s.state}): {line(s, 0.0)}" for s in statuses]
                rows += filter(None, (silence(s, typed(s.run, args.db, db.url)) for s in statuses))
                print("\n".join(rows) or "no runs yet")
            return 0
        status = read_status(db, args.name)
        ranked = []
        if status.is_clips:
            from prefrl.report.ranking import read_ranking

            ranked = read_ranking(db, args.name)
    finally:
        db.close()
    if args.json:
        more = {"ranking": [one.to_dict() for one in ranked]} if status.is_clips else {}
        print(json.dumps(status.to_dict() | more, indent=2))
    else:
        from rich.console import Console

        from prefrl.run.view import ranks, silence, table

        Console().print(table(status, 0.0), *([ranks(ranked)] if ranked else []))
        if hint := silence(status, typed(status.run, args.db, db.url)):
            print(hint)
    return 0


def _db(args: argparse.Namespace) -> int:
    if args.action == "upgrade":
        from prefrl.store.migrate import upgrade

        upgrade(args.db)
        print("the database is up to date")
        return 0
    db = open_database(args, readonly=True)
    db.close()
    print(f"{db.url} can be read and is up to date")
    return 0


def _doctor(args: argparse.Namespace) -> int:
    from prefrl.doctor import examine

    findings = examine(human=args.human)
    for finding in findings:
        print(finding)
    return 0 if all(f.ok for f in findings) else 1
