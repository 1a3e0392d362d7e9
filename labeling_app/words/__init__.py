"""The words of the app: one catalogue a language, with the same keys in each."""

from __future__ import annotations

import functools
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from labeling_app.session import Ack, Held
from labeling_app.states import PageState, Situation
from prefrl.envs.tasks import TASKS

LANGUAGES = {"en": "English", "ko": "한국어"}
FALLBACK = "en"
PARTS = ("", "dashboard.", "settings.")  # the Label page and its frame; the pages for who owns the run; Settings
_SPANS = ((86_400_000, "days"), (3_600_000, "hours"), (60_000, "minutes"), (1_000, "seconds"))


@dataclass(frozen=True)
class Words:
    """A catalogue; ``words("page.title")`` is one entry, with its places filled in."""

    language: str
    tree: dict[str, Any]

    def __call__(self, key: str, /, **places: object) -> str:
        """One entry.

        Raises:
            KeyError: The catalogue has no such entry.
        """
        found: Any = self.tree
        for part in key.split("."):
            found = found[part]
        return str(found).format(**places) if places else str(found)

    def table(self, name: str) -> dict[str, str]:
        """All entries of one table, their places open."""
        return dict(self.tree[name])

    def span(self, ms: int) -> str:
        """A length of time, such as ``3 min``."""
        size, name = next((unit for unit in _SPANS if ms >= 2 * unit[0]), _SPANS[-1])
        return self(f"span.{name}", n=max(1, round(ms / size)))


def choose(wanted: str | None, locale: str | None) -> str:
    """The language of the page: what was asked for, else the browser's, else English."""
    for tag in (wanted, locale):
        language = (tag or "").replace("_", "-").split("-")[0].lower()
        if language in LANGUAGES:
            return language
    return FALLBACK


@functools.cache
def load(language: str) -> Words:
    """The catalogue of a language.

    Raises:
        KeyError: There is none.
    """
    if language not in LANGUAGES:
        raise KeyError(language)
    tree: dict[str, Any] = {}
    for part in PARTS:
        tree |= tomllib.loads((Path(__file__).parent / f"{part}{language}.toml").read_text(encoding="utf-8"))
    return Words(language, tree | {"tasks": _instructions(language)})


def _instructions(language: str) -> dict[str, Any]:
    """What annotators of each task are asked to look for; the English words are the tasks' own."""
    if language == FALLBACK:
        return {task.name: task.instructions for task in TASKS.values()}
    return tomllib.loads((Path(__file__).parent / f"tasks.{language}.toml").read_text(encoding="utf-8"))


def ack_line(words: Words, ack: Ack, held: Held) -> str:
    """What the page says about one entry, such as ``Saved: left. 37 of 200``."""
    if ack.outcome not in ("saved", "undone", "skipped"):
        return words(f"ack.{ack.outcome}")
    line = words(f"ack.{ack.kind}")
    if ack.kind == "skip" or not held.budget:
        return line
    return words("ack.count", line=line, done=held.done, budget=held.budget)


def state_words(words: Words, now: Situation) -> dict[str, str]:
    """Title and text of a state; a reason from the database stays apart, for it is not ours."""
    age = words("span.never") if now.age_ms is None else words.span(now.age_ms)
    places = {
        "age": age,
        "age_or_never": age if now.age_ms is None else words("span.ago", span=age),
        "wait": words.span(now.wait_ms or 0),
        "n": now.n,
    }
    notice = now.waits_for_you and now.state is PageState.READY
    return {
        "name": now.state.value,
        "title": words(f"state.{now.state.value}.title", **places),
        "text": words(f"state.{now.state.value}.text", **places),
        "reason": now.reason,
        "notice": words("notice.waits_for_you") if notice else "",
    }
