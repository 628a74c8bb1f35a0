"""`sort-by`: valid settings, and the order of the rows in a file."""

from __future__ import annotations

import json
import math

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from connect_py.api.errors import ConfigError
from connectors.iceberg.config.layout_terms import PartitionTerm, SortTerm, parse_sort_by
from connectors.iceberg.config.sink_config import IcebergSinkConfig
from connectors.iceberg.staging.staged_file_writer import sort_rows
from connectors.iceberg.table.table import TableDescription, WriteMode


def column(name: str, *more: bool) -> SortTerm:
    return SortTerm(PartitionTerm(name, "identity"), *more)


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("", ()),
        ("region", (column("region"),)),
        (" region ASC , placed desc", (column("region"), column("placed", True, False))),
        (
            "[a nulls last, b.c desc NULLS FIRST]",
            (column("a", False, False), column("b.c", True, True)),
        ),
        (
            "days(placed) desc, bucket(id, 16)",
            (
                SortTerm(PartitionTerm("placed", "day"), True, False),
                SortTerm(PartitionTerm("id", "bucket", 16)),
            ),
        ),
    ],
)
def test_sort_orders_are_read_as_spark_writes_them(text: str, terms: tuple[SortTerm, ...]) -> None:
    assert parse_sort_by(text) == terms


@pytest.mark.parametrize("text", ["a, a desc", "bucket(a)", "power(a)", "days()"])
def test_sort_orders_that_make_no_sense_are_refused(text: str) -> None:
    props = {
        "name": "sink",
        "connector.class": "org.apache.iceberg.connect.IcebergSinkConnector",
        "topics": "orders",
        "iceberg.tables": "shop.orders",
        "iceberg.catalog.type": "rest",
        "iceberg.table.shop.orders.sort-by": text,
    }
    with pytest.raises(ConfigError) as refused:
        IcebergSinkConfig.parse(props)
    assert refused.value.key == "iceberg.table.shop.orders.sort-by"


VALUES = st.lists(
    st.tuples(st.none() | st.integers(0, 3), st.none() | st.sampled_from("abc")), max_size=12
)


@given(rows=VALUES, directions=st.tuples(*[st.booleans()] * 4))
def test_files_are_sorted_as_python_would_sort_them(
    rows: list[tuple[int | None, str | None]], directions: tuple[bool, bool, bool, bool]
) -> None:
    descending, nulls_first, second_descending, second_nulls_first = directions
    table = pa.table(
        {
            "n": pa.array([n for n, _ in rows], pa.int32()),
            "s": pa.array([{"t": t} for _, t in rows], pa.struct([("t", pa.string())])),
            "at": pa.array(range(len(rows)), pa.int64()),
        }
    )
    sort_by = [("n", descending, nulls_first), ("s.t", second_descending, second_nulls_first)]
    positions = sort_rows(table, sort_by)["at"].to_pylist()

    def rank(value: int | None, down: bool, first: bool) -> float:
        if value is None:
            return -math.inf if first else math.inf
        return -value if down else value

    assert positions == sorted(
        range(len(rows)),
        key=lambda at: (
            rank(rows[at][0], descending, nulls_first),
            rank(
                None if rows[at][1] is None else ord(str(rows[at][1])),
                second_descending,
                second_nulls_first,
            ),
        ),
    )


def test_columns_that_are_not_there_order_nothing() -> None:
    table = pa.table({"a": [2, 1], "list": [[1], [0]]})
    sort_by = [("b", False, True), ("list", False, True), ("a.b", True, True)]
    assert sort_rows(table, sort_by) is table
    assert sort_rows(table, []) is table


def test_order_of_files_travels_to_the_tasks() -> None:
    made = TableDescription(
        "t", "u", 2, "l", "d", 0, "{}", "{}", WriteMode.APPEND, sort_by=(("a", True, False),)
    )
    assert TableDescription.from_json(json.loads(json.dumps(made.to_json()))) == made
