"""Look through the comparisons, watch their clips again, correct them or take them back.

Nothing is ever changed in place: an edit is a new row that supersedes the old one.
"""

from __future__ import annotations

import uuid
from typing import Any

import streamlit as st

from labeling_app.annotator import clean_name
from labeling_app.personal import authenticated
from labeling_app.shown import NONE, Say
from prefrl.errors import PrefrlError
from prefrl.report.markup import moment
from prefrl.segments.video import media_type
from prefrl.store.browse import SORTS, Entry, Filter, annotators, comparisons_page, history
from prefrl.store.clips import clip_states, load_clip
from prefrl.store.comparisons import supersede
from prefrl.store.engine import Database
from prefrl.store.folder import clip_names, is_clips
from prefrl.store.gold import gold_of, gold_questions, mark_gold, unmark_gold
from prefrl.store.runs import Run, get_run
from prefrl.types import MAX_NAME, Comparison, Preference

SIZES = (10, 25, 50, 100)
ANSWERS = (Preference.LEFT, Preference.RIGHT, Preference.TIE, Preference.INCOMPARABLE)
CLIP_WIDTH = 360  # pixels; on a narrow screen less
COLUMNS = (
    *("seq", "annotator", "preference", "shown_left", "segment_1", "segment_2", "late", "supersedes"),
    *("superseded_by", "response_ms", "env_steps", "created_ms"),
)


def page(db: Database, run_name: str, say: Say, *, annotator: str = "", editable: bool = True) -> None:
    """Draw the page.

    Args:
        db: The database of the run.
        run_name: The run.
        say: Looks words up in the table ``comparisons``.
        annotator: Who is looking, for the changes he makes; empty asks for a name.
        editable: Whether he may change answers; asked anew at every click, for each is a run of the script.
    """
    st.title(say("comparisons.title"))
    if flash := st.session_state.pop("comparisons-flash", ""):
        st.success(flash)
    try:
        run = get_run(db, run_name)
        entries = listing(db, run, say)
        if entries:
            seqs = [e.comparison.seq for e in entries]
            seq = st.selectbox(say("comparisons.open"), seqs, key="comparisons-open")
            entry = next((e for e in entries if e.comparison.seq == seq), entries[0])
            details(db, run, entry, say)
            change(db, run, entry, say, annotator=annotator, editable=editable)
    except PrefrlError as error:
        st.warning(say("comparisons.unreachable"))
        st.text(str(error))


def listing(db: Database, run: Run, say: Say) -> tuple[Entry, ...]:
    """Filters, the table and its pages; returns what is on this page."""
    wanted = _filters(db, run, say)
    left, middle, right = st.columns(3, vertical_alignment="bottom")
    sort = left.selectbox(
        say("comparisons.sort"), list(SORTS), format_func=lambda s: say(f"comparisons.col_{s}"), key="comparisons-sort"
    )
    size = middle.selectbox(say("comparisons.size"), SIZES, index=1, key="comparisons-size")
    descending = right.toggle(say("comparisons.descending"), value=True, key="comparisons-descending")
    total = comparisons_page(db, run.id, wanted, limit=1).total
    st.caption(say("comparisons.total", n=f"{total:,}"))
    if not total:
        st.info(say("comparisons.empty"))
        return ()
    n_pages = -(-total // size)
    # a filter may leave fewer pages than the one that was open
    st.session_state["comparisons-page"] = min(st.session_state.get("comparisons-page", 1), n_pages)
    at = st.number_input(
        say("comparisons.page", n=f"{n_pages:,}"), min_value=1, max_value=n_pages, step=1, key="comparisons-page"
    )
    found = comparisons_page(
        db, run.id, wanted, sort=sort, descending=descending, limit=size, offset=(int(at) - 1) * size
    )
    columns = {say(f"comparisons.col_{name}"): [_cell(e, name, say) for e in found.entries] for name in COLUMNS}
    st.dataframe(columns, hide_index=True, width="stretch", placeholder=NONE)
    return found.entries


def _filters(db: Database, run: Run, say: Say) -> Filter:
    def named(value: str | None) -> str:
        return say("comparisons.any") if value is None else value

    def answer(value: Preference | None) -> str:
        return say(f"comparisons.{'any' if value is None else value.value}")

    def truth(value: bool | None) -> str:
        return say(f"comparisons.{ {None: 'any', True: 'yes', False: 'no'}[value] }")

    one, two, three, four = st.columns(4)
    truths = (None, True, False)
    late = say("comparisons.late_help")
    return Filter(
        one.selectbox(
            say("comparisons.annotator"), [None, *annotators(db, run.id)], format_func=named, key="comparisons-who"
        ),
        two.selectbox(say("comparisons.preference"), [None, *Preference], format_func=answer, key="comparisons-what"),
        three.selectbox(say("comparisons.late"), truths, format_func=truth, help=late, key="comparisons-late"),
        four.selectbox(say("comparisons.superseded"), truths, format_func=truth, key="comparisons-superseded"),
    )


def _cell(entry: Entry, name: str, say: Say) -> Any:
    one = entry.comparison
    if name == "superseded_by":
        return entry.superseded_by
    if name == "preference":
        return say(f"comparisons.{one.preference.value}")
    if name == "late":
        return say("comparisons.yes" if one.late else "comparisons.no")
    return moment(one.created_ms) if name == "created_ms" else getattr(one, name)


def details(db: Database, run: Run, entry: Entry, say: Say) -> None:
    """Both clips as they were shown, and everything that was ever said about this answer."""
    one = entry.comparison
    sides = (one.segment_1, one.segment_2) if one.shown_left == 1 else (one.segment_2, one.segment_1)
    states = clip_states(db, sides)
    files = clip_names(db, run.id) if is_clips(run) else {}
    for column, side, id_ in zip(st.columns(2), ("left", "right"), sides, strict=True):
        with column:
            st.caption(say(f"comparisons.clip_{side}"))
            if id_ in files:
                st.text(files[id_])  # text, not Markdown: it is a file's
            video = load_clip(db, id_)
            if video is not None:
                st.video(video, format=media_type(video), loop=True, muted=True, width=CLIP_WIDTH)
            elif id_ not in states:
                st.info(say("comparisons.clip_pruned"))
            elif states[id_].state == "failed":
                st.info(say("comparisons.clip_failed"))
                st.text(states[id_].reason or "")
            else:
                st.info(say("comparisons.clip_pending"))
    st.markdown(f"**{say('comparisons.history')}**")
    rows = history(db, run.id, one.seq)
    names = ("seq", "preference", "annotator", "created_ms")
    columns = {say(f"comparisons.col_{n}"): [_cell(Entry(r, None), n, say) for r in rows] for n in names}
    st.dataframe(columns, hide_index=True, width="stretch", placeholder=NONE)
    st.caption(say("comparisons.history_means"))


def change(db: Database, run: Run, entry: Entry, say: Say, *, annotator: str, editable: bool) -> None:
    """Correct the answer or take it back."""
    one = entry.comparison
    if db.readonly or not editable:
        st.info(say("comparisons.read_only" if db.readonly else "comparisons.not_allowed"))
        return
    if entry.superseded_by is not None:
        st.info(say("comparisons.replaced", n=entry.superseded_by))
        return
    who = annotator or _name(say)
    place = ANSWERS.index(one.preference) if one.preference in ANSWERS else None
    answer = st.radio(
        say("comparisons.new_answer"),
        ANSWERS,
        index=place,
        format_func=lambda p: say(f"comparisons.{p.value}"),
        horizontal=True,
        key=f"comparisons-answer-{run.id}-{one.seq}",
    )
    left, right = st.columns(2)
    save = left.button(say("comparisons.save"), key="comparisons-save", disabled=not who or answer is None)
    gone = one.preference is Preference.WITHDRAWN
    withdraw = right.button(say("comparisons.withdraw"), key="comparisons-withdraw", disabled=not who or gone)
    if who:
        known_answer(db, run, one, who, say)
    if withdraw and not gone:
        _replace(db, run, one, Preference.WITHDRAWN, who, say)
    elif save and answer is one.preference:
        st.info(say("comparisons.unchanged"))
    elif save and answer is not None:
        _replace(db, run, one, answer, who, say)


def known_answer(db: Database, run: Run, one: Comparison, who: str, say: Say) -> None:
    """Take this answer for the right one, and ask its pair as a gold question; or take none of them any more."""
    known = gold_questions(db, run.id)
    said, means = gold_of(one), say("comparisons.gold_means")
    left, right = st.columns(2)
    new = said is not None and said not in known  # also where the pair has another right answer so far
    if new and left.button(say("comparisons.mark_gold"), key="comparisons-gold", help=means):
        mark_gold(db, run.id, one, who)
        _flash(say("comparisons.marked_gold", n=one.seq))
    marked = one.pair in {(gold.segment_1, gold.segment_2) for gold in known}
    if marked and right.button(say("comparisons.unmark_gold"), key="comparisons-no-gold", help=means):
        unmark_gold(db, run.id, one.pair)
        _flash(say("comparisons.unmarked_gold", n=one.seq))


def _flash(line: str) -> None:
    """Says something on the next pass, which begins now."""
    st.session_state["comparisons-flash"] = line
    st.rerun()


def _name(say: Say) -> str:
    """The name that is typed, as it is stored; empty after saying what is wrong with it."""
    typed = st.text_input(say("comparisons.your_name"), max_chars=MAX_NAME, key="comparisons-name")
    name = clean_name(typed)
    if name is None:
        st.caption(say(f"comparisons.{'name_bad' if typed.strip() else 'name_needed'}"))
    return name or ""


def _replace(db: Database, run: Run, one: Comparison, preference: Preference, who: str, say: Say) -> None:
    # one id for one intention: a click that is sent twice, or again after an error, stores one row
    key = f"comparisons-uuid-{run.id}-{one.seq}-{preference.value}"
    made = st.session_state.setdefault(key, str(uuid.uuid4()))
    new = supersede(
        db, run.id, one.seq, preference, who, made, detail={"authenticated": authenticated(), "page": "comparisons"}
    )
    words = "comparisons.took_back" if preference is Preference.WITHDRAWN else "comparisons.saved"
    _flash(say(words, n=new.seq, old=one.seq))
