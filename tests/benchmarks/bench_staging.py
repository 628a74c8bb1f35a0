"""Micro benchmark of staging: unwrapped row columns to staged Parquet, against plain
`pq.write_table` of the same rows.

    python tests/benchmarks/bench_staging.py [rows]

Prints microseconds of CPU per row and the ratio to the plain write, in append and in merge mode.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

sys.path.insert(0, str(Path(__file__).parent))
import cdc_load

from connect_py.api.batch import Batch, Column, Origin
from connect_py.api.record import TimestampType, TopicPartition
from connect_py.api.schema import Schema, Struct, Type, struct
from connect_py.columns.arrow import to_array
from connectors.iceberg.config.sink_config import IcebergSinkConfig
from connectors.iceberg.conversion.types import TypeOptions, new_table_schema
from connectors.iceberg.protocol.positions import Epoch
from connectors.iceberg.staging.row_buffer import MemoryBudget
from connectors.iceberg.staging.table_stager import TableStager
from connectors.iceberg.table.table import TableDescription, WriteMode

BATCH_ROWS = 2000
TYPES = {"long": Type.INT64, "int": Type.INT32, "double": Type.FLOAT64, "string": Type.STRING}
PARTITION = TopicPartition("orders", 0)


def row_schema() -> Schema:
    fields = [(n, Schema(TYPES[t], optional=n != "id")) for n, t in cdc_load.COLUMNS]
    return struct(*fields, ("__deleted", Schema(Type.STRING, optional=True)))


def load(count: int) -> tuple[Schema, list[Batch]]:
    """Rows as the unwrapping transformation leaves them, in batches; deletes are marked and
    followed by a tombstone."""
    schema = row_schema()
    key_schema = struct(("id", Schema(Type.INT64)))
    rows: list[tuple[int, Struct | None]] = []
    for key, event in cdc_load.events(count, count // 5):
        image = event["after"] or event["before"]
        values = [image[n] for n, _ in cdc_load.COLUMNS]
        deleted = event["after"] is None
        rows.append((key, Struct(schema, [*values, "true" if deleted else "false"])))
        if deleted:
            rows.append((key, None))
    batches = []
    for start in range(0, len(rows), BATCH_ROWS):
        part = rows[start : start + BATCH_ROWS]
        gone = pa.array([value is None for _, value in part])
        size = len(part)
        origin = Origin(
            "orders",
            pa.array([0] * size, pa.int32()),
            pa.array(range(start, start + size), pa.int64()),
            TimestampType.CREATE_TIME,
            [b""] * size,
            [b""] * size,
        )
        keys = to_array(key_schema, [Struct(key_schema, [key]) for key, _ in part])
        batches.append(
            Batch(
                "orders",
                Column(key_schema, keys),
                Column(schema, to_array(schema, [v for _, v in part]), gone),
                pa.array([0] * size, pa.int64()),
                None,
                origin,
            )
        )
    return schema, batches


def stager(schema: Schema, folder: Path, mode: WriteMode) -> TableStager:
    props = {
        "name": "bench",
        "connector.class": "org.apache.iceberg.connect.IcebergSinkConnector",
        "iceberg.tables": "db.orders",
        "iceberg.catalog.type": "jdbc",
    }
    if mode is WriteMode.MERGE:
        props |= {
            "iceberg.tables.cdc-field": "__deleted",
            "iceberg.tables.default-id-columns": "id",
        }
    config = IcebergSinkConfig.parse(props)
    made = new_table_schema(schema, pa.null(), TypeOptions.of(config), ["id"])
    description = TableDescription(
        "db.orders",
        "u",
        2,
        str(folder),
        str(folder / "data"),
        0,
        json.dumps(made),
        '{"spec-id":0,"fields":[]}',
        mode,
        ("id",) if mode is WriteMode.MERGE else (),
    )
    return TableStager(description, config, Epoch(1, "a"), "0", MemoryBudget(1 << 30))


def best(run: Callable[[], None], times: int = 5) -> float:
    """CPU seconds of the fastest run."""
    found = []
    for _ in range(times):
        start = time.process_time()
        run()
        found.append(time.process_time() - start)
    return min(found)


def main() -> None:
    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
    schema, batches = load(count)
    rows = sum(len(b) for b in batches)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        plain = pa.concat_tables(
            [
                pa.Table.from_struct_array(b.value.data.filter(b.value.data.is_valid()))
                for b in batches
            ]
        )

        def write_plain() -> None:
            pq.write_table(plain, folder / "plain.parquet")

        floor = best(write_plain)
        print(
            f"{rows} records, {plain.num_rows} rows; plain write_table {floor / rows * 1e6:.2f} "
            f"us/record"
        )
        for mode in WriteMode:
            staging = stager(schema, folder, mode)
            adding = [0.0]

            def stage(staging: TableStager = staging, adding: list[float] = adding) -> None:
                start = time.process_time()
                for batch in batches:
                    staging.add(staging.prepare(batch))
                adding[0] = time.process_time() - start
                staging.close_cycle(1, PARTITION)

            taken = best(stage)
            print(
                f"{mode.value}: {taken / rows * 1e6:.2f} us/record ({adding[0] / rows * 1e6:.2f} "
                f"before the cycle closes), {taken / floor:.2f} of the plain write"
            )


if __name__ == "__main__":
    main()
