from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from connectors.iceberg.staging.file_output import dictionary_columns

ROWS = 20_000


def chunked(column: pa.Array) -> pa.ChunkedArray:
    return pa.chunked_array([column.slice(0, 7), column.slice(7, 4000), column.slice(4007)])


def chosen(values: list[Any], type_: pa.DataType | None = None) -> bool:
    rows = pa.table({"c": chunked(pa.array(values, type_))})
    return dictionary_columns(rows) == ["c"]


@pytest.mark.parametrize(
    ("values", "wanted"),
    [
        (list(range(ROWS)), False),
        ([f"text {row}" for row in range(ROWS)], False),
        ([row // 2 for row in range(ROWS)], False),
        (["NEW", "PAID", "SHIPPED", None] * (ROWS // 4), True),
        ([row * 7919 % 1000 for row in range(ROWS)], True),
        (["constant"] * ROWS, True),
        ([None] * ROWS, True),
        ([row // 50 for row in range(ROWS)], True),
        # more than fit in a dictionary
        ([f"{row % 1499} " + "x" * 2000 for row in range(ROWS)], False),
    ],
    ids=["unique", "unique texts", "pairs", "few", "some", "one", "none", "runs", "long"],
)
def test_values_that_repeat_get_a_dictionary_and_others_do_not(
    values: list[Any], wanted: bool
) -> None:
    assert chosen(values, pa.string() if values[0] is None else None) is wanted


def test_leaves_of_nested_columns_are_judged_one_by_one(tmp_path: Path) -> None:
    unique, few = list(range(ROWS)), [row % 3 for row in range(ROWS)]
    struct = pa.StructArray.from_arrays([pa.array(unique), pa.array(few)], names=["u", "f"])
    lists = pa.array([[value] for value in few])
    maps = pa.array(
        [[(f"key {value % 2}", value)] for value in unique], pa.map_(pa.string(), pa.int64())
    )
    rows = pa.table({"s": struct, "l": lists, "m": maps, "id": pa.array(unique)})
    found = dictionary_columns(rows)
    assert found == ["s.f", "l.list.element", "m.key_value.key"]
    path = tmp_path / "rows.parquet"
    pq.write_table(rows, path, use_dictionary=found)
    group = pq.ParquetFile(path).metadata.row_group(0)
    columns = [group.column(index) for index in range(group.num_columns)]
    assert [c.path_in_schema for c in columns if c.has_dictionary_page] == found


def test_files_without_rows_or_with_few_are_no_trouble() -> None:
    empty = pa.table(
        {"a": pa.array([], pa.int64()), "s": pa.array([], pa.struct([("x", pa.string())]))}
    )
    assert set(dictionary_columns(empty)) <= {"a", "s.x"}
    assert dictionary_columns(pa.table({"a": [1, 2, 3]})) == []


def test_oversized_rows_leave_the_dictionary_choice_to_the_writer() -> None:
    large = pa.table({"c": ["x" * (9 << 20), "y" * (9 << 20)]})
    assert dictionary_columns(large) is True
    assert dictionary_columns(pa.concat_tables([large] * 3000)) is True
