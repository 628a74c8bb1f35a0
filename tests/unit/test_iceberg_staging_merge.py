"""Merged tables: the meaning of a row, the last change per key, and the staged rows."""

from __future__ import annotations

import base64
import math
import uuid
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from iceberg_staging_rows import (
    ORDERS_0,
    ORDERS_1,
    batch,
    changes,
    field_ids,
    read,
    record,
    stage,
    stager,
    table,
)

from connect_py.api.batch import Batch
from connect_py.api.errors import BadRows
from connect_py.api.schema import (
    BYTES,
    INT32,
    INT64,
    STRING,
    Schema,
    Struct,
    Type,
    array,
    map_of,
    struct,
)
from connectors.iceberg.staging.partial_rows import Placeholder
from connectors.iceberg.staging.row_keys import key_numbers, last_per_key
from connectors.iceberg.staging.table_stager import TableStager

KEY = struct(("id", INT64))
ROW = struct(
    ("id", INT64),
    ("v", Schema(Type.STRING, optional=True)),
    ("__op", Schema(Type.STRING, optional=True)),
)
COLUMNS = [("id", "long"), ("v", "string")]
GONE = "__debezium_unavailable_value"


def row(offset: int, id_: int | None, v: str | None, op: str | None = "u", **more: Any) -> Any:
    key = Struct(KEY, [id_])
    return record(Struct(ROW, [id_, v, op]), offset, key=key, **more)


def tombstone(offset: int, id_: Any, **more: Any) -> Any:
    return record(None, offset, key=Struct(KEY, [id_]), **more)


def merging(folder: Path, **more: str) -> TableStager:
    description = table(COLUMNS, keys=["id"], required=["id"], folder=folder)
    return stager(description, tables__cdc_field="__op", **more)


def test_the_last_change_of_each_key_wins_in_offset_order(tmp_path: Path) -> None:
    made = merging(tmp_path)
    first = batch([row(1, 1, "a", "c"), row(2, 2, "b", "r"), row(3, 1, "c"), row(4, 3, "d", "c")])
    second = batch(
        [
            row(5, 3, None, "d"),
            tombstone(6, 3),
            row(7, 2, "e"),
            row(8, 4, "f", "d"),
            row(9, 4, "g", "c"),
        ]
    )
    files = stage(made, first, second)
    assert sorted(read(files), key=lambda r: r["id"]) == [
        {"id": 1, "v": "c"},
        {"id": 2, "v": "e"},
        {"id": 4, "v": "g"},
    ]
    assert read(files, "deletes") == [{"id": 3}]
    assert {f.kind.value: f.rows for f in files} == {"rows": 3, "deletes": 1}
    deletes = next(f for f in files if f.kind.value == "deletes")
    assert field_ids(deletes.path) == {"id": 1}
    assert not pq.read_schema(deletes.path).field("id").nullable
    assert pq.read_schema(files[-1].path).names == ["id", "v"]


def test_earlier_changes_of_uuid_keys_are_staged_beside_the_last(tmp_path: Path) -> None:
    codes = [f"{n:08x}-0000-4000-8000-000000000000" for n in range(2)]
    changed = struct(("id", STRING), ("v", Schema(Type.STRING, optional=True)), ("at", INT64))
    description = table(
        [("id", "uuid"), ("v", "string")], keys=["id"], required=["id"], folder=tmp_path
    )
    made = stager(description, ext__ordering_columns="at")
    records = [record(Struct(changed, [codes[n % 2], f"v{n}", n]), n) for n in range(4)]
    files = stage(made, batch(records))
    assert sorted(row["v"] for row in read(files)) == ["v2", "v3"]
    assert sorted(changes(files, "v", "partial")) == [("v0", False), ("v1", False)]


@pytest.mark.parametrize(
    ("op", "meaning"),
    [
        ("c", "rows"),
        ("r", "rows"),
        (" update ", "rows"),
        ("I", "rows"),
        (None, "rows"),
        ("D", "deletes"),
        ("delete", "deletes"),
        ("t", None),
        ("m", None),
    ],
)
def test_debezium_and_tabular_letters_are_understood(
    tmp_path: Path, op: str | None, meaning: str | None
) -> None:
    made = merging(tmp_path)
    prepared = made.prepare(batch([row(0, 1, "x", op)]))
    made.add(prepared)
    files = made.close_cycle(1, ORDERS_0)
    assert [f.kind.value for f in files] == ([meaning] if meaning else [])
    assert prepared.ignored == (meaning is None)


def test_a_nested_operation_field_and_a_deleted_flag_are_understood(tmp_path: Path) -> None:
    nested = struct(("id", INT64), ("_cdc", struct(("op", STRING))))
    value = Struct(nested, [1, Struct(nested["_cdc"], ["D"])])
    made = stager(
        table([("id", "long")], keys=["id"], folder=tmp_path), tables__cdc_field="_cdc.op"
    )
    assert [f.kind.value for f in stage(made, batch([record(value, 0)]))] == ["deletes"]
    flagged = struct(("id", INT64), ("__deleted", STRING))
    made = stager(
        table([("id", "long")], keys=["id"], folder=tmp_path), tables__cdc_field="__deleted"
    )
    files = stage(
        made,
        batch([record(Struct(flagged, [1, "true"]), 0), record(Struct(flagged, [2, "false"]), 1)]),
    )
    assert [(f.kind.value, f.rows) for f in files] == [("deletes", 1), ("rows", 1)]


def test_a_tombstone_deletes_by_struct_map_or_primitive_key(tmp_path: Path) -> None:
    for number, (key, key_schema) in enumerate(
        [
            (Struct(KEY, [7]), KEY),
            ({"id": 7}, None),
            (7, INT64),
            ("7", STRING),
            ({"id": 7}, map_of(STRING, INT32)),
        ]
    ):
        made = merging(tmp_path / str(number))
        files = stage(made, batch([record(None, 0, key=key, key_schema=key_schema)]))
        assert read(files, "deletes") == [{"id": 7}], key


@pytest.mark.parametrize(
    ("name", "unit_per_second"),
    [("MicroTimestamp", 10**6), ("NanoTimestamp", 10**9), ("Timestamp", 10**3)],
)
def test_primitive_key_uses_the_unit_of_its_logical_name(
    tmp_path: Path, name: str, unit_per_second: int
) -> None:
    key_schema = Schema(Type.INT64, name=f"io.debezium.time.{name}", version=1)
    row_schema = struct(("at", key_schema), ("v", Schema(Type.STRING, optional=True)))
    at = 1_700_000_000 * unit_per_second
    records = [
        record(Struct(row_schema, [at, "x"]), 0, key=at, key_schema=key_schema),
        record(
            Struct(row_schema, [at + unit_per_second, "y"]),
            1,
            key=at + unit_per_second,
            key_schema=key_schema,
        ),
        record(None, 2, key=at, key_schema=key_schema),
    ]
    files = stage(
        stager(table([("at", "timestamp"), ("v", "string")], keys=["at"], folder=tmp_path)),
        *Batch.of(records),
    )
    assert [row["at"] for row in read(files, "deletes")] == [datetime(2023, 11, 14, 22, 13, 20)]
    assert [row["v"] for row in read(files)] == ["y"]


def test_record_without_key_and_value_is_ignored_and_counted(tmp_path: Path) -> None:
    made = merging(tmp_path)
    prepared = made.prepare(batch([record(None, 0)]))
    assert (prepared.parts, prepared.ignored) == ({}, 1)


def test_a_tombstone_with_a_schema_deletes_too(tmp_path: Path) -> None:
    made = merging(tmp_path)
    optional = ROW.replace(optional=True)
    files = stage(made, batch([record(None, 0, key=Struct(KEY, [1]), schema=optional)]))
    assert read(files, "deletes") == [{"id": 1}]


def test_key_columns_missing_in_the_value_come_from_the_key(tmp_path: Path) -> None:
    value = struct(("v", STRING))
    made = merging(tmp_path)
    files = stage(made, batch([record(Struct(value, ["x"]), 0, key=Struct(KEY, [5]))]))
    assert read(files) == [{"id": 5, "v": "x"}]


def test_null_keys_fail_their_rows_or_are_skipped_on_request(tmp_path: Path) -> None:
    value = struct(("id", Schema(Type.INT64, optional=True)), ("v", STRING))
    mixed = batch([record(Struct(value, [1, "a"]), 0), record(Struct(value, [None, "b"]), 1)])
    description = table(COLUMNS, keys=["id"], folder=tmp_path)
    made = stager(description, tables__upsert_mode_enabled="true")
    with pytest.raises(BadRows) as raised:
        made.prepare(mixed)
    assert list(raised.value.errors) == [1]
    assert "null in the key" in str(raised.value.errors[1])
    skipping = stager(description, tables__upsert_mode_enabled="true", ext__null_key="skip")
    assert read(stage(skipping, mixed)) == [{"id": 1, "v": "a"}]
    assert skipping.prepare(mixed).ignored == 1


def test_only_the_key_of_a_delete_must_fit(tmp_path: Path) -> None:
    wide = struct(("id", INT64), ("n", Schema(Type.INT64, optional=True)), ("__op", STRING))
    description = table(
        [("id", "long"), ("n", "int"), ("must", "int")],
        keys=["id"],
        required=["must"],
        folder=tmp_path,
    )
    made = stager(description, tables__cdc_field="__op")
    files = stage(made, batch([record(Struct(wide, [1, 2**40, "d"]), 0)]))
    assert read(files, "deletes") == [{"id": 1}]
    with pytest.raises(BadRows):
        made.prepare(batch([record(Struct(wide, [1, 2, "c"]), 0)]))


def test_key_that_does_not_convert_is_reported_with_its_reason(tmp_path: Path) -> None:
    made = stager(
        table([("id", "int")], keys=["id"], folder=tmp_path), tables__upsert_mode_enabled="true"
    )
    value = struct(("id", INT64))
    with pytest.raises(BadRows) as raised:
        made.prepare(batch([record(Struct(value, [2**40]), 0)]))
    assert "does not fit column type int" in str(raised.value.errors[0])


def test_composite_keys_of_unusual_types_stay_distinct(tmp_path: Path) -> None:
    text = "00000000-0000-0000-0000-00000000000a"
    value = struct(("u", STRING), ("n", INT32), ("v", STRING))
    columns = [("u", "uuid"), ("n", "int"), ("v", "string")]
    made = stager(
        table(columns, keys=["u", "n"], folder=tmp_path), tables__upsert_mode_enabled="true"
    )
    rows = [
        record(Struct(value, [text, n, v]), i)
        for i, (n, v) in enumerate([(1, "a"), (2, "b"), (1, "c")])
    ]
    assert sorted(r["v"] for r in read(stage(made, batch(rows)))) == ["b", "c"]


def test_kafka_partitions_are_staged_apart_and_can_be_dropped(tmp_path: Path) -> None:
    made = merging(tmp_path)
    made.add(made.prepare(batch([row(5, 1, "a"), row(9, 2, "b", partition=1), row(6, 3, "c")])))
    assert made.partitions() == [ORDERS_0, ORDERS_1]
    made.drop_partition(ORDERS_1)
    assert made.close_cycle(1, ORDERS_1) == []
    assert [r["id"] for r in read(made.close_cycle(1, ORDERS_0))] == [1, 3]
    assert made.buffered_bytes == 0
    assert made.close_cycle(2, ORDERS_0) == []


def test_row_with_an_unavailable_value_is_staged_as_partial(tmp_path: Path) -> None:
    made = merging(tmp_path)
    files = stage(made, batch([row(0, 1, GONE), row(1, 2, "b")]))
    assert read(files) == [{"id": 2, "v": "b"}]
    assert changes(files, "id", "v", "partial", "unavailable") == [(1, None, True, "\x1f2\x1f")]
    assert [(f.unavailable, f.partial, f.pairs) for f in files if f.kind.value == "changes"] == [
        (("v",), 1, False)
    ]


def test_earlier_changes_are_staged_only_for_keys_with_partial_rows(tmp_path: Path) -> None:
    made = merging(tmp_path)
    rows = [
        row(0, 1, "a"),
        row(1, 1, GONE),
        row(2, 2, GONE),
        row(3, 2, None),
        row(4, 3, "c"),
        row(5, 3, None, "d"),
        row(6, 3, GONE, "c"),
        row(7, 4, "old"),
        row(8, 4, "new"),
        row(9, 4, GONE),
        row(10, 5, "x"),
        row(11, 5, "y"),
    ]
    files = stage(made, batch(rows[:3]), batch(rows[3:]))
    assert read(files) == [{"id": 2, "v": None}, {"id": 5, "v": "y"}]
    assert changes(files, "id", "v", "partial") == [
        (1, "a", False),
        (1, None, True),
        (2, None, False),
        (3, "c", False),
        (3, None, False),
        (3, None, True),
        (4, "old", False),
        (4, "new", False),
        (4, None, True),
    ]


def test_rows_to_complete_name_the_columns_that_each_lacks(tmp_path: Path) -> None:
    value = struct(("id", INT64), ("a", STRING), ("b", STRING))
    columns = [("id", "long"), ("a", "string"), ("b", "string")]
    made = stager(
        table(columns, keys=["id"], required=["a"], folder=tmp_path),
        tables__upsert_mode_enabled="true",
    )
    values = [(1, GONE, "x"), (2, GONE, GONE), (3, "y", GONE), (4, GONE, "z"), (1, "new", GONE)]
    files = stage(made, batch([record(Struct(value, list(v)), i) for i, v in enumerate(values)]))
    assert changes(files, "id", "a", "b", "unavailable", "partial") == [
        (1, None, "x", "\x1f2\x1f", False),
        (2, None, None, "\x1f2\x1f3\x1f", True),
        (3, "y", None, "\x1f3\x1f", True),
        (4, None, "z", "\x1f2\x1f", True),
        (1, "new", None, "\x1f3\x1f", True),
    ]
    assert read(files) == []


def test_an_unavailable_list_of_uuids_is_staged_to_be_completed(tmp_path: Path) -> None:
    # as Debezium sends it
    given, gone = ("0f0e0d0c-0b0a-0908-0706-050403020100", "b68a35a7-17ad-35b3-af2a-ae46edb4545a")
    lists = {"type": "list", "element-id": 9, "element": "uuid", "element-required": False}
    description = table(
        [("id", "long"), ("v", lists)], keys=["id"], required=["id"], folder=tmp_path
    )
    made = stager(description, tables__upsert_mode_enabled="true")
    rows = [
        record({"id": 1, "v": [given]}, 0),
        record({"id": 1, "v": [gone]}, 1),
        record({"id": 2, "v": None}, 2),
    ]
    files = stage(made, *Batch.of(rows))
    assert changes(files, "id", "v", "partial") == [(1, [uuid.UUID(given)], False), (1, None, True)]
    assert read(files) == [{"id": 2, "v": None}]


def test_keys_of_several_columns_are_told_apart(tmp_path: Path) -> None:
    columns = [
        pa.chunked_array([["a", "a", "b", "b", "a"]]),
        pa.chunked_array([[1.0, 2.0, 1.0, -0.0, 1.0]]),
    ]
    assert key_numbers(columns).to_pylist() == [0, 1, 2, 3, 0]
    assert key_numbers([pa.chunked_array([[0.0, -0.0, math.nan, -math.nan]])]).to_pylist() == [
        0,
        0,
        1,
        1,
    ]


@pytest.mark.parametrize(
    ("schema", "value", "schemaless"),
    [
        (STRING, GONE, False),
        (STRING, f'{{"{GONE}":"{GONE}"}}', False),
        (STRING, base64.b64encode(GONE.encode()).decode(), True),
        (BYTES, GONE.encode(), False),
        (array(STRING), [GONE], False),
        (array(STRING), ["b68a35a7-17ad-35b3-af2a-ae46edb4545a"], False),
        (array(BYTES), [GONE.encode()], False),
        (array(INT32), list(GONE.encode()), False),
        (array(INT64), list(GONE.encode()), True),
        (map_of(STRING, STRING), {GONE: GONE}, False),
    ],
)
def test_the_placeholder_is_known_in_all_its_forms(
    schema: Schema, value: Any, schemaless: bool
) -> None:
    from connect_py.columns.arrow import to_array

    data = to_array(schema.replace(optional=True), [None, value])
    found = Placeholder(GONE.encode()).rows(data, schemaless=schemaless)
    assert found is not None
    assert found.to_pylist() == [False, True]


def test_ordinary_values_are_not_taken_for_the_placeholder() -> None:
    placeholder = Placeholder(GONE.encode())
    for data in (
        pa.array(["x", GONE + "x", None]),
        pa.array([[1]]),
        pa.array([b"x"]),
        pa.array([1.0]),
        pa.nulls(3),
    ):
        assert placeholder.rows(data, schemaless=True) is None


def test_keys_that_occur_once_need_no_reduction() -> None:
    assert last_per_key([pa.array([1, 2])], pa.array([5, 6])) is None
    last = last_per_key([pa.array([1, 2, 1]), pa.array(["a", "b", "a"])], pa.array([5, 6, 7]))
    assert last is not None
    assert sorted(last.to_pylist()) == [6, 7]


@pytest.mark.parametrize("type_", [pa.float32(), pa.float64()])
def test_numbers_that_are_equal_are_one_key(type_: pa.DataType) -> None:
    """As they are for Spark, which looks for the rows in the table."""
    keys = pa.array([0.0, -0.0, math.nan, -math.nan, 1.0], type_)
    last = last_per_key([keys], pa.array([5, 6, 7, 8, 9]))
    assert last is not None
    assert sorted(last.to_pylist()) == [6, 8, 9]


def test_rows_beyond_the_memory_budget_spill_to_disk_and_return(tmp_path: Path) -> None:
    description = table(COLUMNS, keys=["id"], required=["id"], folder=tmp_path)
    made = stager(description, memory=100, tables__cdc_field="__op")
    for start in range(0, 40, 10):
        made.add(
            made.prepare(
                batch(
                    [
                        row(start + i, i, GONE if start == 30 and i == 1 else f"{start}")
                        for i in range(10)
                    ]
                )
            )
        )
    assert made.buffered_bytes == 0
    files = made.close_cycle(3, ORDERS_0)
    assert sorted(r["v"] for r in read(files)) == ["30"] * 9
    assert changes(files, "v", "partial") == [
        ("0", False),
        ("10", False),
        ("20", False),
        (None, True),
    ]
    made.discard()


def test_schemaless_rows_merge_by_their_members(tmp_path: Path) -> None:
    made = merging(tmp_path)
    made_batches: list[Batch] = Batch.of(
        [
            record({"id": 1, "v": "a", "__op": "c"}, 0),
            record({"id": 1, "__op": "d"}, 1),
            record({"id": 2}, 2),
        ]
    )
    files = stage(made, *made_batches)
    assert read(files) == [{"id": 2, "v": None}]
    assert read(files, "deletes") == [{"id": 1}]
