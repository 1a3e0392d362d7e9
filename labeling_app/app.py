"""The script that Streamlit runs: the frame, and the pages. `labeling_app.serve` starts it."""

from __future__ import annotations

import streamlit as st

from labeling_app import owner
from labeling_app.label_page import label_page
from labeling_app.personal import page_words
from labeling_app.rights import may_enter

# less room above the clips; a theme setting would do it too, and switch the dark mode off
_ROOM = ".stMainBlockContainer { padding-top: 3.5rem; padding-bottom: 2rem; }"
# where a pass takes longer than half a second Streamlit fades what is there to a third: clips that somebody looks at
_CLEAR = ".stApp [data-stale=true] { opacity: 1 !important; }"
# Korean breaks between words, too; Streamlit says otherwise of each block of text
_WORDS = ".stApp * { word-break: keep-all !important; overflow-wrap: break-word; }"
_NO_STOP = "[data-testid=stStatusWidget] button { display: none; }"  # a pass that is stopped stores nothing
_STYLE = f"<style>{_ROOM} {_CLEAR} {_WORDS} {_NO_STOP}</style>"


def main() -> None:
    """Shows the page that was asked for."""
    words = page_words()
    pages = [
        st.Page(label_page, title=words("page.title"), url_path="label", default=True),
        st.Page(owner.dashboard_page, title=words("dashboard.title"), url_path="dashboard"),
        st.Page(owner.comparisons_page, title=words("comparisons.title"), url_path="comparisons"),
        st.Page(owner.transfer_page, title=words("transfer.title"), url_path="transfer"),
        st.Page(owner.settings_page, title=words("settings.title"), url_path="settings"),
    ]
    page = st.navigation(pages, position="top")
    layout = "centered" if page in (pages[0], pages[-1]) else "wide"  # what is read, and tables
    st.set_page_config(page_title=page.title, layout=layout)  # type: ignore[arg-type]  # one of its two words
    st.html(_STYLE)
    if may_enter(words):
        page.run()


main()
