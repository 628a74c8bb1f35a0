"""Members of decoded structs as columns."""

from __future__ import annotations

import msgspec
import pyarrow as pa
import pytest

from connect_py.converters.decoded_columns import member_getters, repeated_text


class Pair(msgspec.Struct):
    """Two members."""

    f0: object
    f1: object


def test_members_are_taken_out_by_their_place() -> None:
    first, second = member_getters(2)
    rows = [Pair(1, "a"), Pair(2, None)]
    assert (first(rows), second(rows), first([])) == ([1, 2], ["a", None], [])


def test_one_text_in_all_rows_is_repeated() -> None:
    column = repeated_text(["a"] * 3, None)
    assert column is not None
    column.validate(full=True)
    assert column.to_pylist() == ["a"] * 3


@pytest.mark.parametrize("null_at", [0, 1, 2, 8])
def test_rows_of_null_structs_stay_null(null_at: int) -> None:
    nulls = [i == null_at for i in range(9)]
    column = repeated_text([None if n else "ab" for n in nulls], pa.array(nulls))
    assert column is not None
    column.validate(full=True)
    assert column.to_pylist() == [None if n else "ab" for n in nulls]


@pytest.mark.parametrize(
    "values",
    [["a", "b", "a"], ["a", "a", None], [None, None], ["a"], [], [1, 1], [msgspec.UNSET] * 2],
)
def test_other_columns_are_left_to_the_usual_way(values: list[object]) -> None:
    assert repeated_text(values, None) is None
