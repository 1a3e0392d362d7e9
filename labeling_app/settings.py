"""What each visitor, and the owner of a run, can settle about labeling; in force with the next pair."""

from __future__ import annotations

import streamlit as st

from labeling_app.instructions import task_instructions
from labeling_app.personal import choose_keys, choose_language, choose_name
from labeling_app.rules import rules_of
from labeling_app.shown import plain
from labeling_app.words import Words
from prefrl.config import LabelConfig
from prefrl.errors import PrefrlError
from prefrl.store.engine import Database
from prefrl.store.gold import gold_questions
from prefrl.store.runs import Run, get_run, update_label

MAX_OVERLAP, MAX_PERCENT, MAX_PREFETCH, MAX_WORDS = 20, 50, 10, 2000


def page(db: Database, run_name: str, words: Words, *, annotator: str, editable: bool) -> None:
    """Draw the page.

    Args:
        db: The database of the run.
        run_name: The run.
        words: The catalogue.
        annotator: Who is looking; empty where he has not said.
        editable: Whether he may change the run's settings; asked anew at every click.
    """
    st.title(words("settings.title"))
    if flash := st.session_state.pop("settings-flash", ""):
        st.success(flash)
    st.header(words("settings.yours"))
    if annotator:
        choose_name(words, annotator)
    choose_language(words)
    choose_keys(words)
    st.caption(words("settings.yours_means"))
    st.header(words("settings.run"))
    try:
        _of_run(db, get_run(db, run_name), words, editable=editable and not db.readonly)
    except PrefrlError as error:
        st.warning(words("settings.unreachable"))
        st.text(str(error))


def _of_run(db: Database, run: Run, words: Words, *, editable: bool) -> None:
    generation, rules = _shown(run)
    st.caption(words("settings.run_means", name=plain(run.name)))
    if not editable:
        st.info(words("settings.read_only" if db.readonly else "settings.not_allowed"))
    with st.form("settings", border=False):
        typed = _fields(rules, words, len(gold_questions(db, run.id)), generation, disabled=not editable)
        saved = st.form_submit_button(words("settings.save"), type="primary", disabled=not editable)
    st.subheader(words("settings.preview"))
    st.markdown(task_instructions(run, words) or words("page.instructions"))
    if saved and editable:
        before = _as_typed(rules)  # only what he changed is stored, beside what others change meanwhile
        update_label(db, run.id, {name: value for name, value in typed.items() if value != before[name]})
        del st.session_state["settings-seen"]
        st.session_state["settings-flash"] = words("settings.saved")
        st.rerun()


def _shown(run: Run) -> tuple[int, LabelConfig]:
    """A number of the fields on the page, and the rules that they were made of.

    Both are new where the fields are: on the first pass, when the page is come back to, and after a save.
    """
    state = st.session_state
    generation, run_id, rules = state.get("settings-seen", (0, None, None))
    if run_id != run.id or f"settings-overlap-{generation}" not in state:
        generation = state["settings-generation"] = state.get("settings-generation", 0) + 1
        rules = rules_of(run)
        state["settings-seen"] = (generation, run.id, rules)
    return generation, rules


def _as_typed(rules: LabelConfig) -> dict[str, object]:
    """What the fields hold as long as nobody has typed."""
    return {
        "instructions": rules.instructions.strip(),
        "overlap": rules.overlap,
        "repeat_share": round(100 * rules.repeat_share) / 100,
        "gold_share": round(100 * rules.gold_share) / 100,
        "prefetch": rules.prefetch,
    }


def _fields(rules: LabelConfig, words: Words, n_gold: int, generation: int, *, disabled: bool) -> dict[str, object]:
    """The settings as they are typed now."""

    def whole(name: str, least: int, most: int, now: int) -> int:
        label, key = words(f"settings.{name}"), f"settings-{name}-{generation}"
        typed = st.number_input(label, least, max(most, now), now, 1, key=key, disabled=disabled)
        st.caption(words(f"settings.{name}_means", n=n_gold))
        return typed

    def percent(name: str) -> float:
        return whole(name, 0, MAX_PERCENT, round(100 * getattr(rules, name))) / 100

    text = st.text_area(
        words("settings.instructions"),
        rules.instructions,
        max_chars=MAX_WORDS,
        key=f"settings-instructions-{generation}",
        disabled=disabled,
    )
    st.caption(words("settings.instructions_means"))
    return {
        "instructions": text.strip(),
        "overlap": whole("overlap", 1, MAX_OVERLAP, rules.overlap),
        "repeat_share": percent("repeat_share"),
        "gold_share": percent("gold_share"),
        "prefetch": whole("prefetch", 1, MAX_PREFETCH, rules.prefetch),
    }
