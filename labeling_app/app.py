"""The script that Streamlit runs: the frame, and the pages. `labeling_app.serve` starts it."""

from __future__ import annotations

import streamlit as st

from labeling_app.label_page import label_page, page_words

# less room above the clips; a theme setting would do it too, and switch the dark mode off
_STYLE = "<style>.stMainBlockContainer { padding-top: 3.5rem; padding-bottom: 2rem; }</style>"


def main() -> None:
    """Shows the page that was asked for."""
    words = page_words()
    st.set_page_config(page_title=words("page.title"), layout="centered")
    st.html(_STYLE)
    pages = [st.Page(label_page, title=words("page.title"), url_path="label", default=True)]
    st.navigation(pages, position="hidden" if len(pages) == 1 else "sidebar").run()


main()
