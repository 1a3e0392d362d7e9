"""What axe-core finds wrong with a page for people who see badly, hear a page, or use it by keyboard alone."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import sqlalchemy as sa

from prefrl.store.clips import claim_clips, store_clip
from prefrl.store.engine import Database
from prefrl.store.queue import lease, propose
from prefrl.store.schema import clip
from tests.app.conftest import coded_clip
from tests.app.pages import made
from tests.app.screen import Screen, Server, free_port

pytestmark = pytest.mark.xdist_group("browser")
SERVE = "import sys; from labeling_app.serve import serve; serve(sys.argv[1], '', port=int(sys.argv[2]))"
TAB = "0123456789abcdef"  # that holds the pair
PAIR = ".labeler .stage[aria-busy=false]"
PAGES = {  # who looks, the page's name, and what is there once it has come
    "name form": ("", "Compare clips", ".stForm input"),
    "a pair": ("busy", "Compare clips", PAIR),
    "no pair": ("idle", "Compare clips", ".labeler .message:not([hidden])"),
    "dashboard": ("ann", "Dashboard", "video"),  # its last part
    "comparisons": ("ann", "Comparisons", ".stRadio"),
    "transfer": ("ann", "Import and export", ".stFileUploader"),
    "settings": ("ann", "Settings", "[data-testid=stFormSubmitButton] button"),
}
WIDTHS = (1280, 390)
BACKGROUND = "getComputedStyle(document.querySelector('.stApp')).backgroundColor.match(/\\d+/)[0]"
AT_REST = "document.querySelector('[data-test-script-state=notRunning]') && !document.querySelector('.stSkeleton')"
GRAVE = ("serious", "critical")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, browser: Any) -> Iterator[Server]:
    """A run in which everything has happened; one person has a pair, and nothing is left for others."""
    folder = tmp_path_factory.mktemp("site")
    url = f"sqlite:///{folder}/test.db"
    with Database.create(url) as db:
        run = made.full(db)
        one, two = made.fill(db, run, 2)
        propose(db, run.id, [(one, two)], env_steps=1200)
        for id_ in claim_clips(db, run.id, 10):
            store_clip(db, id_, coded_clip(1), {})
        assert lease(db, run.id, "busy", clips=True, lease_ms=3_600_000, tab=TAB)
        with db.write() as connection:  # those of `made` are no videos
            connection.execute(sa.update(clip).where(clip.c.video.is_not(None)).values(video=coded_clip(2)))
    server = Server(url, free_port(), folder / "log", (sys.executable, "-c", SERVE))
    server.start()
    try:
        yield server
    finally:
        server.kill()
    assert "Traceback" not in server.log.read_text()


def look(page: Any, width: int, scheme: str) -> list[dict[str, Any]]:
    """What axe finds in a page of a width, light or dark."""
    from axe_playwright_python.sync_playwright import Axe

    page.set_viewport_size({"width": width, "height": 900})
    page.emulate_media(color_scheme=scheme)
    page.wait_for_function(f"({BACKGROUND} > 128) === {'true' if scheme == 'light' else 'false'}")
    page.wait_for_function(AT_REST)
    page.wait_for_timeout(300)  # colours change little by little
    found: list[dict[str, Any]] = Axe().run(page).response["violations"]
    return found


@pytest.mark.parametrize("name", PAGES)
def test_nothing_grave(name: str, site: Server, open_page: Callable[..., Screen]) -> None:
    who, title, there = PAGES[name]
    page = open_page(site, who, tab=TAB).page
    page.get_by_role("link", name=title).click()
    page.wait_for_selector(there)
    faults = []
    for scheme in ("light", "dark"):
        for width in WIDTHS:
            for fault in look(page, width, scheme):
                if fault["impact"] in GRAVE or fault["id"] == "heading-order":
                    nodes = "\n".join(f"  {node['html'][:160]}: {node['failureSummary']}" for node in fault["nodes"])
                    faults.append(f"{scheme} {width}: {fault['help']}\n{nodes}")
            assert page.evaluate("document.documentElement.scrollWidth") <= width, f"{scheme} {width}: too wide"
    assert not faults, "\n".join(faults)


def test_a_fault_inside_the_component_would_be_found(site: Server, open_page: Callable[..., Screen]) -> None:
    page = open_page(site, "busy", tab=TAB).page
    page.wait_for_selector(PAIR)
    page.evaluate("spy.root().querySelector('[data-do=left]').style.color = '#bbb'")
    page.evaluate("spy.root().querySelector('[data-do=help]').replaceChildren()")
    found = {fault["id"]: fault["impact"] for fault in look(page, 1280, "light")}
    assert found == {"color-contrast": "serious", "button-name": "critical"}
