"""Reading the words of a command line: one line for what is wrong, with the nearest that is right."""

from __future__ import annotations

import argparse
import contextlib
from typing import TYPE_CHECKING, Any

from prefrl.errors import nearest
from prefrl.run.hints import DEFAULT_DB, usual_db

if TYPE_CHECKING:
    from prefrl.store.engine import Database


class Parser(argparse.ArgumentParser):
    """One line for words that it does not know, with the nearest that it does; no abbreviations."""

    def __init__(self, **options: Any) -> None:
        super().__init__(allow_abbrev=False, **options)

    def parse_args(self, argv: Any = None, namespace: Any = None) -> Any:
        """Parse all words; those of a verb are looked up among the verb's own flags."""
        args, unknown = self.parse_known_args(argv, namespace)
        if unknown:
            word = unknown[0].partition("=")[0]
            known = args.parser._option_string_actions if "parser" in args else self._option_string_actions
            self.error(f"unknown argument {word!r}{nearest(word, known)}; `prefrl VERB --help` lists all")
        return args

    def error(self, message: str) -> Any:
        """Say what is wrong and how to find out what is right, and exit with 2."""
        self.exit(2, f"prefrl: {message}\n")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        choices = [str(choice) for choice in action.choices or ()]
        if choices and value not in choices:
            name = "/".join(action.option_strings) or str(action.metavar or action.dest)
            raise argparse.ArgumentError(
                None, f"{name} is {value!r}; it must be one of {', '.join(choices)}{nearest(str(value), choices)}"
            )


def whole(text: str) -> int:
    """A number of things, as ``100000``, ``100_000`` or ``1e5``."""
    for kind in (int, float):
        with contextlib.suppress(ValueError, OverflowError):
            if (number := kind(text)) == int(number):
                return int(number)
    raise argparse.ArgumentTypeError(f"must be a whole number, not {text!r}")


def port(text: str) -> int:
    """A port that a server can have."""
    if text.isdecimal() and 1 <= int(text) <= 65535:
        return int(text)
    raise argparse.ArgumentTypeError(f"must be a number from 1 to 65535, not {text!r}")


def add_verb(verbs: Any, name: str, help_: str, do: Any) -> argparse.ArgumentParser:
    """A verb, done by ``do(args)``, on the database of ``--db``."""
    parser: argparse.ArgumentParser = verbs.add_parser(name, help=help_, description=help_[0].upper() + help_[1:] + ".")
    parser.set_defaults(do=do, parser=parser)
    if name != "doctor":
        parser.add_argument(
            "--db",
            default=usual_db(),
            metavar="URL",
            help=f"sqlite:///FILE or postgresql://… (default: $PREFRL_DB or {DEFAULT_DB})",
        )
    return parser


def open_database(args: argparse.Namespace, *, readonly: bool = False) -> Database:
    """The database of ``--db``."""
    from prefrl.store.engine import Database

    return Database.open(args.db, readonly=readonly)
