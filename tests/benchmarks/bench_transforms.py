"""Microseconds of CPU per record of each transformation: batch form, row form, and their ratio.

    python tests/benchmarks/bench_transforms.py [--rows 4000] [--repeat 60]

Batches contain events of `cdc_load` with 10 % deletes, each followed by its tombstone. The row form
includes neither the creation of rows nor their conversion to columns.
"""

from __future__ import annotations

import argparse
import gc
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1] / "fixtures"))
import cdc_load
from results import print_table
from transforms_chain import configured

from connect_py.api.batch import Batch
from connect_py.api.errors import NotColumnar
from connect_py.api.record import RecordOrigin, SinkRecord
from connect_py.api.schema import (
    INT64,
    OPTIONAL_INT64,
    OPTIONAL_STRING,
    STRING,
    Schema,
    Struct,
    struct,
)
from connect_py.api.schema import Type as SchemaType
from connect_py.process.child_runtime import collect_rarely
from connect_py.task.sink.sink_loop import POLL_RECORDS

TYPES = {
    "long": SchemaType.INT64,
    "int": SchemaType.INT32,
    "double": SchemaType.FLOAT64,
    "string": SchemaType.STRING,
}
ROW = struct(
    *((name, Schema(TYPES[kind], optional=name != "id")) for name, kind in cdc_load.COLUMNS),
    name="bench.public.orders.Value",
    optional=True,
)
SOURCE = struct(
    *(
        (
            name,
            STRING
            if name in ("version", "connector", "name", "snapshot", "db", "schema", "table")
            else INT64,
        )
        for name in (
            "version",
            "connector",
            "name",
            "ts_ms",
            "snapshot",
            "db",
            "schema",
            "table",
            "txId",
            "lsn",
        )
    ),
    name="io.debezium.connector.postgresql.Source",
)
ENVELOPE = struct(
    ("before", ROW),
    ("after", ROW),
    ("source", SOURCE),
    ("op", STRING),
    ("ts_ms", OPTIONAL_INT64),
    ("transaction", OPTIONAL_STRING),
    name="bench.public.orders.Envelope",
)
KEY = struct(("id", INT64), name="bench.public.orders.Key")
DEBEZIUM = "io.debezium.transforms"
ICEBERG = "org.apache.iceberg.connect.transforms"
CONFLUENT = "io.confluent.connect.transforms"
KAFKA = "org.apache.kafka.connect.transforms"
MODE = "delete.tombstone.handling.mode"


def as_struct(schema: Schema, value: Mapping[str, Any] | None) -> Struct | None:
    """A dict as a `Struct`, deeply."""
    if value is None:
        return None
    members = (value[f.name] for f in schema.fields)
    return Struct(
        schema,
        [
            as_struct(f.schema, m) if f.schema.type is SchemaType.STRUCT else m
            for f, m in zip(schema.fields, members, strict=True)
        ],
    )


def events(rows: int, *, with_schema: bool) -> Batch:
    """One batch of events from the middle of the load, tombstones included."""
    records: list[SinkRecord] = []
    for index, (key, event) in enumerate(cdc_load.events(4 * rows, rows)):
        if index < 2 * rows:
            continue
        for value in (event, None) if event["op"] == "d" else (event,):
            made = as_struct(ENVELOPE, value) if with_schema else value
            schema = ENVELOPE if with_schema and value is not None else None
            id_ = Struct(KEY, [key]) if with_schema else {"id": key}
            origin = RecordOrigin("orders", 0, len(records), b"k", b"v")
            records.append(
                SinkRecord(
                    "orders",
                    0,
                    KEY if with_schema else None,
                    id_,
                    schema,
                    made,
                    1_760_000_000_000,
                    origin=origin,
                )
            )
    (batch,) = Batch.of(records[:rows])
    return batch


def cases() -> list[tuple[str, dict[str, str], str]]:
    """Return class, options, and input of the measured transformations.

    `events` and their `rows` have a schema, `plain` has none. Transformations of MongoDB's or DMS's
    events, outbox tables, and bytes are omitted.
    """
    unwrap = f"{DEBEZIUM}.ExtractNewRecordState"
    return [
        (unwrap, {MODE: "rewrite"}, "events"),
        (unwrap, {MODE: "tombstone"}, "events"),
        (unwrap, {MODE: "delete-to-tombstone"}, "events"),
        (unwrap, {MODE: "rewrite", "add.fields": "op,source.ts_ms,lsn"}, "events"),
        (
            f"{DEBEZIUM}.ByLogicalTableRouter",
            {"topic.regex": "(.*)", "topic.replacement": "all"},
            "events",
        ),
        (f"{DEBEZIUM}.ExtractChangedRecordState", {"header.changed.name": "changed"}, "events"),
        (
            f"{DEBEZIUM}.Filter",
            {"language": "connect_py.expression", "condition": "value.op != 'd'"},
            "events",
        ),
        (
            f"{DEBEZIUM}.SchemaChangeEventFilter",
            {"schema.change.event.exclude.list": "DROP_TABLE"},
            "events",
        ),
        (f"{DEBEZIUM}.TimezoneConverter", {"converted.timezone": "Europe/Paris"}, "events"),
        (f"{ICEBERG}.DebeziumTransform", {}, "events"),
        (f"{ICEBERG}.DebeziumTransform", {}, "plain"),
        (f"{ICEBERG}.CopyValue", {"source.field": "id", "target.field": "copy"}, "rows"),
        (f"{ICEBERG}.KafkaMetadataTransform", {}, "rows"),
        (f"{KAFKA}.Cast$Value", {"spec": "quantity:int64,price:float32"}, "rows"),
        (f"{KAFKA}.DropHeaders", {"headers": "h"}, "rows"),
        (f"{KAFKA}.ExtractField$Key", {"field": "id"}, "rows"),
        (f"{KAFKA}.Filter", {}, "rows"),
        (f"{KAFKA}.Flatten$Value", {"delimiter": "_"}, "events"),
        (
            f"{KAFKA}.HeaderFrom$Value",
            {"fields": "sku", "headers": "sku", "operation": "copy"},
            "rows",
        ),
        (f"{KAFKA}.HoistField$Value", {"field": "row"}, "rows"),
        (f"{KAFKA}.InsertField$Value", {"topic.field": "t"}, "rows"),
        (f"{KAFKA}.InsertField$Value", {"topic.field": "t"}, "plain"),
        (
            f"{KAFKA}.InsertField$Value",
            {"topic.field": "t", "offset.field": "o", "timestamp.field": "ts"},
            "rows",
        ),
        (f"{KAFKA}.InsertHeader", {"header": "h", "value.literal": "7"}, "rows"),
        (f"{KAFKA}.MaskField$Value", {"fields": "email"}, "rows"),
        (f"{KAFKA}.RegexRouter", {"regex": "(.*)", "replacement": "lake.$1"}, "rows"),
        (f"{KAFKA}.ReplaceField$Value", {"renames": "sku:article"}, "rows"),
        (f"{KAFKA}.ReplaceField$Value", {"exclude": "comment", "renames": "sku:article"}, "rows"),
        (f"{KAFKA}.ReplaceField$Value", {"exclude": "transaction"}, "plain"),
        (f"{KAFKA}.SetSchemaMetadata$Value", {"schema.name": "n"}, "rows"),
        (
            f"{KAFKA}.TimestampConverter$Value",
            {"field": "created_at", "target.type": "Timestamp", "unix.precision": "microseconds"},
            "rows",
        ),
        (f"{KAFKA}.TimestampRouter", {}, "rows"),
        (f"{KAFKA}.ValueToKey", {"fields": "id"}, "rows"),
        (f"{CONFLUENT}.Drop$Key", {}, "rows"),
        (f"{CONFLUENT}.ExtractTopic$Value", {"field": "status"}, "rows"),
        (f"{CONFLUENT}.MessageTimestampRouter", {"message.timestamp.keys": "created_at"}, "rows"),
        (f"{CONFLUENT}.TombstoneHandler", {"behavior": "ignore"}, "rows"),
    ]


def micros_per_row(work: Callable[[], object], rows: int, repeat: int) -> float:
    """Microseconds of CPU: the best of several runs."""
    best = float("inf")
    for _ in range(repeat):
        begun = time.process_time()
        work()
        best = min(best, time.process_time() - begun)
    return best / rows * 1e6


def measure(
    name: str, options: Mapping[str, str], kind: str, batch: Batch, repeat: int
) -> list[str]:
    """Measure the cost of a row as columns and as a row; return one line."""
    transformation = configured({"type": name, **options})
    records: Sequence[SinkRecord] = batch.records()
    in_rows = micros_per_row(
        lambda: [transformation.apply(r) for r in records], len(batch), max(3, repeat // 20)
    )
    told = [options[key] for key in (MODE, "exclude", "renames") if key in options]
    told += [
        key.partition(".")[0]
        for key in options
        if key in ("add.fields", "offset.field", "timestamp.field")
    ]
    label = " ".join([name.rpartition(".")[2], *told])
    try:
        in_columns = micros_per_row(lambda: transformation.apply_batch(batch), len(batch), repeat)
    except NotColumnar:
        return [label, kind, "rows only", f"{in_rows:.2f}", ""]
    return [label, kind, f"{in_columns:.3f}", f"{in_rows:.2f}", f"{in_rows / in_columns:.0f}x"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=POLL_RECORDS)
    parser.add_argument("--repeat", type=int, default=60)
    options = parser.parse_args()
    import pyarrow as pa

    pa.set_cpu_count(1)  # as in a task process
    gc.freeze()
    collect_rarely()
    batch, plain = (events(options.rows, with_schema=with_schema) for with_schema in (True, False))
    (rewritten,) = configured(
        {"type": f"{DEBEZIUM}.ExtractNewRecordState", MODE: "rewrite"}
    ).apply_batch(batch)
    inputs = {"events": batch, "plain": plain, "rows": rewritten}
    table = [
        measure(name, props, kind, inputs[kind], options.repeat) for name, props, kind in cases()
    ]
    print(f"batches of {len(batch)}; microseconds of CPU per record")
    print_table(["transformation", "input", "columns", "rows", "ratio"], table)


if __name__ == "__main__":
    main()
