"""CSV for spreadsheets: every row with its history, and no cell that a spreadsheet would run."""

from __future__ import annotations

import csv
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefrl.transfer.spreadsheet import HEADER, guarded, to_csv
from prefrl.types import Comparison, Preference


def rows_of(data: bytes) -> list[list[str]]:
    return list(csv.reader(io.StringIO(data.decode("utf-8-sig"), newline="")))


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", "\n=1", "  =1", "＝1"])  # noqa: RUF001
def test_formulas_are_guarded(text: str) -> None:
    assert guarded(text) == f"'{text}"


@pytest.mark.parametrize("value", ["ann", "", "a=1", "1-1", -1, -0.5, None, True, '{"a":1}'])
def test_other_cells_stay(value: object) -> None:
    assert guarded(value) is value


def test_every_column_by_hand() -> None:
    first = Comparison(
        *(1, 7, 9, Preference.LEFT, 0.0, 2, "=cmd|' /C calc'!A0", "u-1", 5),
        late=True,
        response_ms=1234,
        env_steps=100,
        detail={"b": 1, "a": "ä"},
        created_ms=0,
    )
    edit = Comparison(2, 7, 9, Preference.WITHDRAWN, None, 2, "한글", "u-2", 5, supersedes=1)
    head, *found = rows_of(to_csv([first, edit]))
    assert tuple(head) == HEADER
    assert found == [
        [
            *("1", "u-1", "'=cmd|' /C calc'!A0", "left", "0.0", "2", "7", "9", "5"),
            *("True", "", "2", "1234", "100", "1970-01-01T00:00:00.000Z", '{"a":"\\u00e4","b":1}'),
        ],
        [
            *("2", "u-2", "한글", "withdrawn", "", "2", "7", "9", "5"),
            *("False", "1", "", "", "0", "1970-01-01T00:00:00.000Z", "{}"),
        ],
    ]


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_names_survive_and_are_never_formulas(name: str) -> None:
    one = Comparison(1, 1, 2, Preference.TIE, 0.5, 1, name, "u")
    cell = rows_of(to_csv([one]))[1][2]
    assert cell.removeprefix("'") == name.removeprefix("'")
    assert not cell.lstrip().startswith(("=", "+", "-", "@"))
