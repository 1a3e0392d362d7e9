"""Several people in real browsers, each with keys of his own, under what the owner has settled."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from prefrl.store.runs import get_run, update_label
from tests.app.screen import KINDS, Screen, rows_of, sides, wait_for_rows

pytestmark = pytest.mark.xdist_group("browser")


def test_a_pair_is_asked_of_two_people_where_the_owner_wants_it(served: Any, open_page: Callable[..., Screen]) -> None:
    """He says so on the Settings page, and the next page that asks for pairs follows."""
    desk, server = served
    desk.propose(20)
    owner = open_page(server, "boss").page
    owner.get_by_role("link", name="Settings").click()
    overlap = owner.get_by_role("spinbutton", name="People for each pair")
    overlap.fill("2")
    overlap.press("Tab")
    owner.get_by_role("button", name="Save").click()
    owner.get_by_text("Saved. It holds from the next pair on.").wait_for()
    try:
        assert get_run(desk.db, "cheetah").config["label"]["overlap"] == 2
        one = open_page(server, "one")
        seen, codes = [], one.watch()
        for _ in range(3):
            seen.append(sorted(codes))
            one.press("ArrowLeft")
            codes = one.watch(codes)
        wait_for_rows(desk, one, "one", 3)
        one.page.close()
        two = open_page(server, "two")
        answered, codes, deadline = [], two.watch(), time.monotonic() + 60
        while not all(pair in answered for pair in seen):
            assert time.monotonic() < deadline
            answered.append(sorted(codes))
            two.press("ArrowRight")
            codes = two.watch(codes)
        rows = wait_for_rows(desk, two, "two", len(answered))
        assert not any(row.late for row in rows)
        assert {row.pair for row in rows_of(desk, "one")} <= {row.pair for row in rows}
    finally:
        update_label(desk.db, desk.run.id, {"overlap": 1})


def test_tabs_of_one_person_hold_pairs_of_their_own(served: Any, open_page: Callable[..., Screen]) -> None:
    desk, server = served
    desk.propose(20)
    one = open_page(server, "twice")
    codes = one.watch()
    with one.page.expect_popup() as opened:
        one.page.evaluate("window.open(location.href)")  # with a copy of sessionStorage, as when a tab is duplicated
    two = Screen(opened.value)
    others = two.watch()
    assert not set(codes) & set(others)
    for screen, shown in ((one, codes), (two, others)):
        screen.page.reload()
        assert screen.watch() == shown, "the same pair as before"
    for key in ("ArrowLeft", "ArrowRight", "ArrowDown"):
        one.press(key)
        two.press(key)
        codes, others = one.watch(codes), two.watch(others)
    rows = wait_for_rows(desk, one, "twice", 6)
    assert not any(row.late for row in rows)
    assert len({row.pair for row in rows}) == 6
    pressed = [(press["codes"], KINDS[press["key"]]) for screen in (one, two) for press in screen.presses()]
    assert sorted((sides(desk, row), row.preference.value) for row in rows) == sorted(pressed)
    two.press("Backspace")
    two.shows("again", "again")
    undone = two.watch(others)
    one.page.get_by_role("link", name="Settings").click()
    one.page.get_by_role("button", name="Save").wait_for()
    one.page.get_by_role("link", name="Compare clips").click()
    assert one.watch() == codes, "nor does a look at another page change a tab's name"
    assert two.watch() == undone
    one.press("ArrowLeft")
    assert one.watch(codes) != undone, "what is taken back is shown where that was asked for"


def test_new_instructions_reach_a_page_that_is_open(served: Any, open_page: Callable[..., Screen]) -> None:
    desk, server = served
    desk.propose(4)
    screen = open_page(server, "reader")
    screen.watch()
    screen.page.evaluate("window.stays = true")
    update_label(desk.db, desk.run.id, {"instructions": "Prefer the *quicker* one."})
    try:
        screen.press("ArrowLeft")
        screen.page.get_by_text("Prefer the quicker one.").wait_for(timeout=15_000)
        assert screen.page.evaluate("window.stays"), "without a reload"
        wait_for_rows(desk, screen, "reader", 1)
    finally:
        update_label(desk.db, desk.run.id, {"instructions": ""})


def test_keys_for_the_left_hand(served: Any, open_page: Callable[..., Screen]) -> None:
    desk, server = served
    desk.propose(8)
    screen = open_page(server, "lefty&keys=letters")
    codes = screen.watch()
    assert [screen.page.locator(f"[data-do={name}] kbd").inner_text() for name in ("left", "undo")] == ["A", "Q"]
    for key in ("d", "s", "a", " ", "ArrowRight"):
        screen.press(key)
        codes = screen.watch(codes)
    rows = wait_for_rows(desk, screen, "lefty", 5)
    assert [row.preference.value for row in rows] == ["right", "tie", "left", "incomparable", "right"]
    screen.press("q")
    screen.shows("again", "again")
    assert screen.watch(codes) == screen.presses()[-2]["codes"]
    screen.press("a")
    rows = wait_for_rows(desk, screen, "lefty", 7)  # with what took it back
    assert (rows[-1].preference.value, rows[-1].supersedes) == ("left", rows[-2].seq)
    # an input method that is composing names no sign, only the place of the key
    screen.watch()
    composed = "new KeyboardEvent('keydown', { key: 'Process', code: 'KeyD', bubbles: true, composed: true })"
    screen.page.evaluate(f"document.body.dispatchEvent({composed})")
    assert wait_for_rows(desk, screen, "lefty", 8)[-1].preference.value == "right"
    # a keyboard with a layer of arrows over its letters says which sign it means
    screen.watch()
    layer = "new KeyboardEvent('keydown', { key: 'ArrowLeft', code: 'KeyD', bubbles: true, composed: true })"
    screen.page.evaluate(f"document.body.dispatchEvent({layer})")
    assert wait_for_rows(desk, screen, "lefty", 9)[-1].preference.value == "left"
    screen.press("t")  # a key of the other layout
    screen.press("p")
    screen.page.wait_for_timeout(500)
    assert len(rows_of(desk, "lefty")) == 9
