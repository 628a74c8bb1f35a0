"""Structs of a column that somebody keeps, after the column was let go of."""

from __future__ import annotations

import gc
from sys import getrefcount

from connect_py.api.batch import Column
from connect_py.api.schema import INT64, STRING, Struct, array, struct
from connect_py.columns import arrow
from connect_py.columns.struct_view import StructRows, StructView

INNER = struct(("city", STRING))
OUTER = struct(("id", INT64), ("tags", array(STRING)), ("address", INNER))


def _column() -> Column:
    rows = [Struct(OUTER, [n, [str(n)], Struct(INNER, [f"c{n}"])]) for n in range(3)]
    return Column(OUTER, arrow.to_array(OUTER, rows))


def _view(rows: StructRows, row: int) -> StructView:
    view = rows.views[row]
    assert view is not None
    return view


def test_a_struct_that_is_kept_says_what_it_said() -> None:
    rows = StructRows(OUTER, _column())
    view = _view(rows, 1)
    tags, address = view.get("tags"), view.get("address")
    tags.append("more")
    address.put("city", "Rome")
    untouched = _view(rows, 2)
    rows.release()
    assert (view.get("id"), view.get("tags")) == (1, ["1", "more"])
    assert view.get("address").get("city") == address.get("city") == "Rome"
    assert untouched.read_values() == [2, ["2"], Struct(INNER, ["c2"])]


def test_structs_that_somebody_keeps_do_not_hold_the_column() -> None:
    column = _column()
    gc.collect()
    gc.disable()
    try:
        before = getrefcount(column)
        rows = StructRows(OUTER, column)
        kept = _view(rows, 1)
        inside = _view(rows, 2).get("address")
        rows.release()
        del rows
        assert getrefcount(column) == before
    finally:
        gc.enable()
    assert kept.read_values() == [1, ["1"], Struct(INNER, ["c1"])]
    assert inside.get("city") == "c2"
