"""Microseconds per row of the transformations: batch form, row form, and their ratio.

    python tests/benchmarks/bench_transforms.py [--rows 2000] [--repeat 60]

Batches hold events of `cdc_load` with 10 % deletes, each followed by its tombstone. The row form includes neither
making the rows nor the way back to columns.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1] / "fixtures"))
import cdc_load
from transforms_chain import configured

from connect_py.api.batch import Batch
from connect_py.api.record import RecordOrigin, SinkRecord
from connect_py.api.schema import INT64, OPTIONAL_INT64, OPTIONAL_STRING, STRING, Schema, Struct, struct
from connect_py.api.schema import Type as SchemaType

TYPES = {"long": SchemaType.INT64, "int": SchemaType.INT32, "double": SchemaType.FLOAT64, "string": SchemaType.STRING}
ROW = struct(
    *((name, Schema(TYPES[kind], optional=name != "id")) for name, kind in cdc_load.COLUMNS),
    name="bench.public.orders.Value", optional=True,
)  # fmt: skip
SOURCE = struct(
    *((name, STRING if name in ("version", "connector", "name", "snapshot", "db", "schema", "table") else INT64)
      for name in ("version", "connector", "name", "ts_ms", "snapshot", "db", "schema", "table", "txId", "lsn")),
    name="io.debezium.connector.postgresql.Source",
)  # fmt: skip
ENVELOPE = struct(
    ("before", ROW), ("after", ROW), ("source", SOURCE), ("op", STRING), ("ts_ms", OPTIONAL_INT64),
    ("transaction", OPTIONAL_STRING), name="bench.public.orders.Envelope",
)  # fmt: skip
KEY = struct(("id", INT64), name="bench.public.orders.Key")
DEBEZIUM = "io.debezium.transforms.ExtractNewRecordState"
ICEBERG = "org.apache.iceberg.connect.transforms.DebeziumTransform"
KAFKA = "org.apache.kafka.connect.transforms"
MODE = "delete.tombstone.handling.mode"


def as_struct(schema: Schema, value: Mapping[str, Any] | None) -> Struct | None:
    """A dict as a `Struct`, deeply."""
    if value is None:
        return None
    members = (value[f.name] for f in schema.fields)
    return Struct(schema, [
        as_struct(f.schema, m) if f.schema.type is SchemaType.STRUCT else m
        for f, m in zip(schema.fields, members, strict=True)
    ])  # fmt: skip


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
                    "orders", 0, KEY if with_schema else None, id_, schema, made, 1_760_000_000_000, origin=origin
                )
            )
    (batch,) = Batch.of(records[:rows])
    return batch


def micros_per_row(work: Callable[[], object], rows: int, repeat: int) -> float:
    """The best of several runs."""
    best = float("inf")
    for _ in range(repeat):
        begun = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - begun)
    return best / rows * 1e6


def measure(label: str, props: Mapping[str, str], batch: Batch, repeat: int) -> None:
    """Print one line."""
    transformation = configured(props)
    records: Sequence[SinkRecord] = batch.records()
    columns = micros_per_row(lambda: transformation.apply_batch(batch), len(batch), repeat)
    rows = micros_per_row(lambda: [transformation.apply(r) for r in records], len(batch), max(3, repeat // 20))
    print(f"{label:44}{columns:8.3f}{rows:8.2f}{rows / columns:8.0f}x")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=2000)
    parser.add_argument("--repeat", type=int, default=60)
    options = parser.parse_args()
    import pyarrow as pa

    pa.set_cpu_count(1)  # as in a task process
    batch, plain = (events(options.rows, with_schema=with_schema) for with_schema in (True, False))
    (rewritten,) = configured({"type": DEBEZIUM, MODE: "rewrite"}).apply_batch(batch)
    print(f"{len(batch)} rows; µs per row{'batch':>25}{'row':>8}{'ratio':>9}")
    for mode in ("rewrite", "tombstone", "delete-to-tombstone"):
        measure(f"ExtractNewRecordState {mode}", {"type": DEBEZIUM, MODE: mode}, batch, options.repeat)
    added = {"type": DEBEZIUM, MODE: "rewrite", "add.fields": "op,source.ts_ms,lsn"}
    measure("ExtractNewRecordState rewrite, add.fields", added, batch, options.repeat)
    measure("DebeziumTransform", {"type": ICEBERG}, batch, options.repeat)
    measure("DebeziumTransform, schemaless", {"type": ICEBERG}, plain, options.repeat)
    inserted = {"type": f"{KAFKA}.InsertField$Value", "topic.field": "t", "offset.field": "o", "timestamp.field": "ts"}
    measure("InsertField", inserted, rewritten, options.repeat)
    replaced = {"type": f"{KAFKA}.ReplaceField$Value", "exclude": "comment", "renames": "sku:article"}
    measure("ReplaceField", replaced, rewritten, options.repeat)
    routed = {"type": f"{KAFKA}.RegexRouter", "regex": "(.*)", "replacement": "lake.$1"}
    measure("RegexRouter", routed, rewritten, options.repeat)


if __name__ == "__main__":
    main()
