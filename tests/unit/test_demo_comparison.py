"""PostgreSQL's rows compared with Iceberg's: equal values are equal in either form, and every
difference is reported.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog

from connect_py.demo.comparison import Comparison, TableComparison

TYPES = {
    "id": "int8",
    "price": "numeric",
    "sku": "uuid",
    "at": "timestamptz",
    "day": "date",
    "doc": "jsonb",
    "tags": "_text",
    "weight": "float8",
}
# As PostgreSQL prints it, and as PyIceberg reads it.
SOURCE = (
    '{"id": 1, "price": 12.50, "sku": "00000000-0000-0000-0000-000000000007", "at": '
    '"2026-01-01T08:00:00.5+00:00",'
    ' "day": "2026-01-02", "doc": {"b": [1, 2.50], "a": null}, "tags": ["x", "y"], "weight": 0.125}'
)
ROW: dict[str, Any] = {
    "id": 1,
    "price": Decimal("12.5"),
    "sku": UUID(int=7).bytes,
    "at": datetime(2026, 1, 1, 8, 0, 0, 500_000, UTC),
    "day": date(2026, 1, 2),
    "doc": '{"a": null, "b": [1, 2.5]}',
    "tags": ["x", "y"],
    "weight": 0.125,
}
SCHEMA = pa.schema(
    {
        "id": pa.int64(),
        "price": pa.decimal128(10, 2),
        "sku": pa.uuid(),
        "at": pa.timestamp("us", "UTC"),
        "day": pa.date32(),
        "doc": pa.string(),
        "tags": pa.list_(pa.string()),
        "weight": pa.float64(),
    }
)


class FakePostgres:
    """Answers the two questions of a comparison."""

    def __init__(self, rows: Sequence[str], types: dict[str, str]) -> None:
        self._rows, self._types = rows, types

    def run(self, statements: str, database: str) -> str:
        assert database == "shop"
        if "to_jsonb(t)" in statements:
            assert 'public."or""ders"' in statements
            return "\n".join(self._rows)
        return json.dumps({"table": 'or"ders', "types": self._types, "key": ["id"]})


def compare(
    folder: Path,
    rows: Sequence[str],
    iceberg: Sequence[dict[str, Any]],
    types: dict[str, str] = TYPES,
) -> TableComparison:
    catalog = SqlCatalog(
        "shop", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}/warehouse"
    )
    catalog.create_namespace("shop")
    if iceberg:
        catalog.create_table('shop.or"ders', SCHEMA).append(
            pa.Table.from_pylist(list(iceberg), SCHEMA)
        )
    postgres: Any = FakePostgres(rows, types)
    (compared,) = Comparison(postgres, "shop", catalog, "shop").compare()
    catalog.close()
    return compared


def test_equal_rows_of_all_types_have_no_difference(tmp_path: Path) -> None:
    compared = compare(tmp_path, [SOURCE], [ROW])
    assert (compared.source_rows, compared.iceberg_rows) == (1, 1)
    assert compared.differences == []


@pytest.mark.parametrize(
    "changed",
    [
        {"price": Decimal("12.51")},
        {"sku": UUID(int=8).bytes},
        {"doc": '{"a": null, "b": [1, 2.6]}'},
        {"tags": ["y", "x"]},
        {"day": None},
        {"at": datetime(2026, 1, 1, 8, tzinfo=UTC)},
        {"weight": 0.25},
    ],
    ids=lambda changed: next(iter(changed)),
)
def test_one_other_value_is_a_difference_on_both_sides(
    tmp_path: Path, changed: dict[str, Any]
) -> None:
    found = compare(tmp_path, [SOURCE], [{**ROW, **changed}]).differences
    assert [text.split(", for")[0] for text in found] == [
        "1 row is missing or differs",
        "1 row is unexpected",
    ]


def test_missing_and_doubled_rows_are_both_differences(tmp_path: Path) -> None:
    assert compare(tmp_path / "a", [SOURCE], []).differences[0].startswith("1 row is missing")
    assert (
        compare(tmp_path / "b", [SOURCE], [ROW, ROW])
        .differences[0]
        .startswith("1 row is unexpected")
    )


def test_columns_of_unknown_types_are_named_and_left_out(tmp_path: Path) -> None:
    types = {**TYPES, "weight": "interval", "price": "money"}
    compared = compare(tmp_path, [SOURCE], [{**ROW, "weight": 9.0, "price": None}], types)
    assert sorted(compared.left_out) == ["price", "weight"]
    assert compared.differences == []


@pytest.fixture(autouse=True)
def _folders(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
