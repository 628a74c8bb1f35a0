"""Merge tables whose key is a uuid: upserts and deletes over several cycles, one row per key."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from bad_input import case, lakehouse, worker
from lakehouse import Lakehouse
from pyiceberg.schema import Schema
from pyiceberg.types import NestedField, StringType, UUIDType
from sink_case import SinkCase

__all__ = ["case", "lakehouse", "worker"]  # fixtures

# A task with a Spark driver that starts on a busy machine. In every run: uuid keys in
# test_iceberg_commit_keys.py.
pytestmark = [pytest.mark.long, pytest.mark.timeout(400)]

UNAVAILABLE = "__debezium_unavailable_value"
MERGE = {
    "iceberg__tables__upsert_mode_enabled": "true",
    "iceberg__tables__default_id_columns": "id",
}


def key(number: int) -> str:
    return f"{number:08x}-0000-4000-8000-00000000000{number}"


def event(number: int, op: str, v: str | None, position: int) -> dict[str, Any]:
    return {"id": key(number), "v": v, "__op": op, "at": position}


def make_table(lakehouse: Lakehouse, case: SinkCase) -> None:
    columns = [
        NestedField(1, "id", UUIDType(), required=True),
        NestedField(2, "v", StringType(), required=False),
    ]
    lakehouse.catalog.create_table(case.table, Schema(*columns, identifier_field_ids=[1]))


def rows(case: SinkCase) -> dict[int, str | None]:
    found = case.lakehouse.rows(case.table).to_pylist()
    made = {UUID(str(row["id"])).fields[0]: row["v"] for row in found}
    assert len(made) == len(found), "a key has several rows"
    return made


def test_upserts_and_deletes_by_uuid_key_merge_over_several_cycles(
    case: SinkCase, lakehouse: Lakehouse
) -> None:
    make_table(lakehouse, case)
    case.create_topic()
    case.produce(*(event(n, "c", f"v{n}", n) for n in (1, 2, 3)), event(1, "u", "v1 again", 4))
    case.start(**MERGE, iceberg__tables__cdc_field="__op")
    case.await_caught_up()
    assert rows(case) == {1: "v1 again", 2: "v2", 3: "v3"}
    # Upserts and deletes are in separate files, which compares the cycle's keys across files.
    case.stop()
    case.produce(
        event(2, "d", None, 5),
        event(3, "u", "v3 again", 6),
        event(4, "c", "v4", 7),
        event(9, "d", None, 8),
    )
    case.resume()
    case.await_caught_up()
    assert rows(case) == {1: "v1 again", 3: "v3 again", 4: "v4"}
    assert case.lakehouse.assert_ledgers_chain(case.table) >= 2


def test_unavailable_values_and_ordering_columns_work_with_uuid_keys(
    case: SinkCase, lakehouse: Lakehouse
) -> None:
    make_table(lakehouse, case)
    case.create_topic()
    case.produce(*(event(n, "c", f"v{n}", n) for n in (1, 2)))
    case.start(**MERGE, iceberg__tables__cdc_field="__op", iceberg__ext__ordering_columns="at")
    case.await_caught_up()
    case.stop()
    case.produce(
        event(1, "u", UNAVAILABLE, 3),
        event(3, "c", "v3", 4),
        event(3, "u", UNAVAILABLE, 5),
        event(2, "d", None, 6),
    )
    case.resume()
    case.await_caught_up()
    assert rows(case) == {1: "v1", 3: "v3"}
