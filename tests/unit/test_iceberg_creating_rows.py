"""Which rows cannot create the table that they are for."""

from __future__ import annotations

from typing import Any

import pytest
from iceberg_staging_rows import batch, config, record

from connect_py.api.schema import INT64, STRING, Struct, decimal, struct
from connectors.iceberg.conversion.full_names import FullNames
from connectors.iceberg.routing.router import Routed
from connectors.iceberg.staging.table_creation import TableCreation
from connectors.iceberg.table.table import TableRequest

TABLE = "db.orders"


def refused(rows: list[Any]) -> dict[int, str]:
    bad = TableCreation(config()).refused_rows(
        TABLE, batch([record(row, n) for n, row in enumerate(rows)])
    )
    return {} if bad is None else {row: str(error) for row, error in bad.errors.items()}


@pytest.mark.parametrize(
    "row",
    [
        17,
        "text",
        [1],
        {},
        {"a": None},
        {"": 1},
        {"x": {"": 1}},
        {"a.b": 1, "a": {"b": 2}},
        {"l": [1], "l.element": 2},
    ],
)
def test_row_without_a_possible_schema_cannot_create_a_table(row: Any) -> None:
    (why,) = refused([row]).values()
    assert why.startswith(f"table {TABLE} does not exist: Unable to create table")


def test_remaining_rows_create_the_table_after_bad_rows_are_refused() -> None:
    rows = [{"": 1}, {"id": 1, "a.b": 1}, {"id": 2}, {"a": {"b": 2}}]
    assert list(refused(rows)) == [0, 3]
    whole = batch([record(row, n) for n, row in enumerate(rows)])
    rest = whole.where(whole.value.data.field("id").is_valid())
    stage = TableCreation(config())
    assert stage.refused_rows(TABLE, rest) is None
    wish = TableRequest.from_text(stage.request(TABLE, rest))
    assert wish.schema is not None
    assert {field["name"] for field in wish.schema["fields"]} == {"id", "a.b"}


def test_all_rows_of_a_schema_without_a_table_are_refused() -> None:
    for schema, value in ((INT64, 1), (struct(), []), (struct(("", INT64)), [1])):
        made = Struct(schema, value) if isinstance(value, list) else value
        bad = TableCreation(config()).refused_rows(
            TABLE, batch([record(made, n, schema=schema) for n in range(2)])
        )
        assert bad is not None
        assert list(bad.errors) == [0, 1]
    fine = struct(("id", STRING), ("d", decimal(2)))
    assert (
        TableCreation(config()).refused_rows(TABLE, batch([record(Struct(fine, ["1", None]), 0)]))
        is None
    )


def test_routed_batch_without_tombstones_keeps_only_its_other_rows() -> None:
    key = {"id": 1}
    made = batch(
        [record(None, 0, key=key), record({"id": 1}, 1, key=key), record(None, 2, key=key)]
    )
    rest = Routed(TABLE, made).without_tombstones()
    assert rest is not None
    assert rest.rows is not None
    assert rest.rows.to_pylist() == [1]
    assert len(rest.batch) == 1
    assert Routed(TABLE, batch([record(None, 0, key=key)])).without_tombstones() is None


def test_names_are_told_apart_as_iceberg_does() -> None:
    names = FullNames(
        [{"name": "a", "type": {"type": "struct", "fields": [{"name": "b", "type": "int"}]}}]
    )
    assert names.add(("a", "b"), "int") is not None
    assert names.add(("a.b",), "int") is not None
    inner = {
        "type": "map",
        "key-id": 2,
        "key": "string",
        "value-id": 3,
        "value": "int",
        "value-required": False,
    }
    of_maps = {"type": "list", "element-id": 1, "element": inner, "element-required": False}
    assert names.add(("a", "c"), of_maps) is None
    assert names.add(("a.c.element.key",), "int") is not None
    assert names.add(("a.",), "int") is None
    assert names.add(("x", ""), "int") is not None
