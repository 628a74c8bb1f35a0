"""Files as tasks stage them, committed and read by a real Spark and Iceberg: every type, transform
and kind of file."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pytest
from fixtures.iceberg_commit import ENGINES, Lake, Sink, lake
from fixtures.iceberg_staging_rows import ORDERS_0, batch, config, record
from short_form import short_form

from connect_py.api.schema import (
    BYTES,
    INT32,
    INT64,
    STRING,
    Schema,
    Struct,
    Type,
    array,
    decimal,
    map_of,
    struct,
)
from connect_py.columns.arrow import arrow_type
from connectors.iceberg.config.layout_terms import parse_partition_by, split_outside_brackets
from connectors.iceberg.conversion.temporal import parse_timestamp
from connectors.iceberg.conversion.types import TypeOptions, new_table_schema, partition_spec
from connectors.iceberg.protocol.commit_request import EngineName
from connectors.iceberg.protocol.positions import Epoch
from connectors.iceberg.staging.row_buffer import MemoryBudget
from connectors.iceberg.staging.table_stager import TableStager
from connectors.iceberg.table.table import StagedFile, WriteMode

__all__ = ["lake"]

DAY = 86_400_000_000


def named(type_: Type, name: str) -> Schema:
    return Schema(type_, name=name, optional=True)


INNER = struct(("a", INT32), ("b", Schema(Type.STRING, optional=True)), optional=True)
ROW = struct(
    ("id", INT64),
    ("day", named(Type.INT32, "io.debezium.time.Date")),
    ("local", named(Type.INT64, "io.debezium.time.MicroTimestamp")),
    ("zoned", named(Type.STRING, "io.debezium.time.ZonedTimestamp")),
    ("code", named(Type.STRING, "io.debezium.data.Uuid")),
    ("amount", decimal(2, optional=True, parameters={"connect.decimal.precision": "9"})),
    ("wide", decimal(4, optional=True)),
    ("raw", Schema(Type.BYTES, optional=True)),
    ("inner", INNER),
    ("items", array(INNER, optional=True)),
    ("tags", map_of(STRING, Schema(Type.INT64, optional=True), optional=True)),
)


def values(id_: int) -> Struct:
    uuid = f"00000000-0000-0000-0000-{id_:012d}"
    item = Struct(INNER, [id_, None])
    return Struct(
        ROW,
        [
            id_,
            id_,
            id_ * DAY + 1,
            f"2024-02-{id_ + 1:02d}T10:00:00.000001Z",
            uuid,
            Decimal(id_) / 4,
            Decimal(id_),
            bytes([id_]),
            item,
            [item, None],
            {"k": id_, "n": None},
        ],
    )


def nulls(id_: int) -> Struct:
    return Struct(ROW, [id_, *[None] * (len(ROW.fields) - 1)])


FULL = {"ext__logical_types": "full"}
MERGE = {**FULL, "tables__upsert_mode_enabled": "true", "tables__cdc_field": "__op"}


def make(
    lake: Lake, row: Schema, partition_by: str, mode: WriteMode, **more: Any
) -> tuple[Sink, TableStager]:
    options = TypeOptions.of(config(**FULL))
    keys = ("id",) if mode is WriteMode.MERGE else ()
    schema = new_table_schema(row, arrow_type(row), options, keys)
    spec = partition_spec(schema, parse_partition_by(tuple(split_outside_brackets(partition_by))))
    sink = lake.make(json.dumps(schema), json.dumps(spec), key_columns=keys, mode=mode, **more)
    settings = config(**(MERGE if keys else FULL))
    return sink, TableStager(
        sink.description(), settings, Epoch(7, "a1"), "0", MemoryBudget(1 << 30)
    )


def stage(stager: TableStager, cycle: int, *records: Any) -> list[StagedFile]:
    stager.add(stager.prepare(batch(records)))
    return stager.close_cycle(cycle, ORDERS_0)


PARTITIONS = [
    "",
    "day(local), bucket(id, 4)",
    "month(zoned), truncate(amount, 10)",
    "year(day), bucket(code, 3)",
    "hour(local), bucket(amount, 3), truncate(code_text, 2)",
    "day, raw, bucket(day, 2)",
    "code, amount, zoned, local, wide",
]


@pytest.mark.parametrize("partition_by", short_form(PARTITIONS, ["", *PARTITIONS[2:5:2]]))
def test_every_type_and_transform_is_read_back_by_spark(lake: Lake, partition_by: str) -> None:
    row = struct(
        *[(f.name, f.schema) for f in ROW.fields], ("code_text", Schema(Type.STRING, optional=True))
    )
    sink, stager = make(lake, row, partition_by, WriteMode.APPEND, version=2)
    made = [Struct(row, [*values(i).values, f"t{i}"]) for i in range(4)]
    empty = Struct(row, [9, *[None] * (len(row.fields) - 1)])
    sink.commit(stage(stager, 1, *[record(v, i) for i, v in enumerate([*made, empty])]))
    shown = {
        dict(r)["id"]: dict(r)
        for r in sink.rows("*, string(local) AS shown, unix_micros(zoned) AS micros")
    }
    assert sorted(shown) == [0, 1, 2, 3, 9]
    assert shown[9] == {"id": 9}
    third = shown[3]
    assert third["day"] == "1970-01-04"
    assert third["shown"] == "1970-01-04 00:00:00.000001"
    assert third["micros"] == parse_timestamp("2024-02-04T10:00:00.000001Z", zoned=True)
    assert third["code"] == "00000000-0000-0000-0000-000000000003"
    assert third["amount"] == pytest.approx(0.75)
    assert third["inner"] == {"a": 3}
    assert third["items"][0] == {"a": 3}
    assert third["tags"]["k"] == 3
    # Partition values that did not belong to their rows would hide these from a filter.
    frame = lake.catalog.spark.sql(
        f"SELECT id FROM lake.{sink.name} WHERE day = DATE '1970-01-04' AND id = 3"
    )
    assert [json.loads(line) for line in frame._jdf.toJSON().collectAsList()] == [{"id": 3}]


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    "partition_by", short_form(["", "day(local), bucket(id, 2)"], ["day(local), bucket(id, 2)"])
)
def test_changes_that_a_task_stages_are_merged(
    lake: Lake, engine: EngineName, partition_by: str
) -> None:
    row = struct(
        ("id", INT64),
        ("local", named(Type.INT64, "io.debezium.time.MicroTimestamp")),
        ("v", Schema(Type.STRING, optional=True)),
        ("big", Schema(Type.STRING, optional=True)),
        ("must", BYTES),
        ("__op", STRING),
    )
    key = struct(("id", INT64))
    sink, stager = make(lake, row, partition_by, WriteMode.MERGE)

    def event(
        offset: int, id_: int, v: str, op: str = "u", big: str = "__debezium_unavailable_value"
    ) -> Any:
        return record(
            Struct(row, [id_, id_ * DAY, v, big, b"m", op]), offset, key=Struct(key, [id_])
        )

    first = [event(i, i, "a", "c", big=f"big {i}") for i in range(5)]
    sink.commit(stage(stager, 1, *first), engine)
    tombstone = record(None, 12, key=Struct(key, [2]))
    second = [
        event(10, 0, "b"),
        event(11, 1, "gone", "d", "x"),
        tombstone,
        event(13, 3, "c", big="new"),
        event(14, 3, "d"),
        event(15, 9, "n", "c", big="nine"),
    ]
    files = stage(stager, 2, *second)
    assert {f.kind.value for f in files} == {"rows", "deletes", "changes"}
    sink.commit(files, engine)
    assert [tuple(v for _, v in r) for r in sink.rows("id, v, big")] == [
        (0, "b", "big 0"),
        (3, "d", "new"),
        (4, "a", "big 4"),
        (9, "n", "nine"),
    ]
