"""The cost of one cycle's MERGE: 200,000 changes per cycle into a table that grows to a million
rows.

    python tests/benchmarks/bench_merge_cycle.py [--changes 200000] [--keys 1000000] [--cycles
        10]

Staged files are those of two tasks: rows and deletes, with random keys and one delete in ten
changes. Format 3, format 2, and a full `MERGE` (format 3) alternate in one driver, each on a
separate table with the same changes; therefore other load on the machine affects all of them. The
CPU time includes the driver's Python and JVM, from the request to its outcome. *warm* is the median
of the cycles' second half. At the end, the three tables are compared.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1] / "fixtures"))

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.compute as pc
from iceberg_commit import Lake, Sink, lake_config
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import Schema
from results import DEFAULT_FILE, keep, machine_microseconds, print_table, versions_line

from connect_py.embedded.spark_environment import spark_environment
from connectors.iceberg.driver.lake_session import LakeSession
from connectors.iceberg.driver.spark_runtime import SparkRuntime
from connectors.iceberg.protocol.commit_request import EngineName, EngineSettings
from connectors.iceberg.table.table import StagedFile, StagedKind

TASKS = 2
TYPES = (
    "long",
    "string",
    "string",
    "double",
    "int",
    "long",
    "string",
    "boolean",
    "timestamptz",
    "decimal(12, 2)",
)
FIELDS = [
    {"id": n, "name": f"c{n}", "required": n == 1, "type": type_}
    for n, type_ in enumerate(TYPES, 1)
]
CONTENDERS = {
    "format 3": (3, EngineName.MERGE, {}),
    "format 2": (2, EngineName.MERGE, {}),
    "by partition": (2, EngineName.MERGE, {"write.delete.granularity": "partition"}),
    "full MERGE": (3, EngineName.FULL_MERGE, {}),
}


def changes(keys: np.ndarray, cycle: int, schema: pa.Schema) -> pa.Table:
    """Return rows of these keys; their values contain the cycle."""
    text = pc.cast(pa.array(keys), pa.string())
    values = {
        "c1": keys,
        "c2": pc.binary_join_element_wise("customer", text, "-"),
        "c3": pc.binary_join_element_wise(text, str(cycle), "/"),
        "c4": keys * 1.5,
        "c5": (keys % 1000).astype(np.int32),
        "c6": keys + cycle,
        "c7": pa.array(np.char.add("status-", (keys % 7).astype(str))),
        "c8": keys % 2 == 0,
        "c9": pa.array(keys * 1_000_000, pa.timestamp("us", "UTC")),
        "c10": pc.cast(pa.array((keys % 100_000).astype(np.int32)), pa.decimal128(12, 2)),
    }
    return pa.table(
        [_column(values[field.name]).cast(field.type) for field in schema], schema=schema
    )


def _column(values: np.ndarray | pa.Array) -> pa.Array:
    return values if isinstance(values, pa.Array) else pa.array(values)


def stage(sink: Sink, keys: np.ndarray, cycle: int, schema: pa.Schema) -> list[StagedFile]:
    """Stage the files of two tasks."""
    files = []
    for task in range(TASKS):
        own = keys[keys % TASKS == task]
        cut = len(own) * 9 // 10
        files += sink.stage(changes(own[:cut], cycle, schema))
        files += sink.stage(
            pa.table([pa.array(own[cut:])], schema=pa.schema([schema.field("c1")])),
            StagedKind.DELETES,
        )
    return files


def main() -> None:
    """Measure the three in turns."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--changes", type=int, default=50_000)
    parser.add_argument("--keys", type=int, default=200_000)
    parser.add_argument("--cycles", type=int, default=6)
    parser.add_argument(
        "--json", type=Path, default=DEFAULT_FILE, help="file that JSON lines are appended to"
    )
    options = parser.parse_args()
    os.environ.update(spark_environment())
    schema = json.dumps({"type": "struct", "schema-id": 0, "fields": FIELDS})
    arrow = schema_to_pyarrow(Schema.model_validate_json(schema), include_field_ids=True)
    random = np.random.default_rng(1)
    machine = machine_microseconds()
    with tempfile.TemporaryDirectory(prefix="connect-py-bench-") as folder:
        config = lake_config(Path(folder))
        runtime = SparkRuntime(
            config.jvm_options(), config.static_settings(), Path(folder) / "spark.log"
        )
        try:
            session = runtime.new_session(config.session_settings())
            lake = Lake(
                runtime, LakeSession(session, config.catalog, EngineSettings()), Path(folder)
            )
            sinks = {
                who: lake.make(schema, None, version, ("c1",), **more)
                for who, (version, _, more) in CONTENDERS.items()
            }
            watched = [psutil.Process(), psutil.Process(runtime.pid)]
            costs: dict[str, list[float]] = {who: [] for who in CONTENDERS}
            for cycle in range(options.cycles):
                keys = random.choice(options.keys, options.changes, replace=False)
                for who, (_, engine, _) in CONTENDERS.items():
                    files = stage(sinks[who], keys, cycle, arrow)
                    before = cpu_seconds(watched)
                    outcome = sinks[who].commit(files, engine)
                    costs[who].append(cpu_seconds(watched) - before)
                    print(
                        f"{who} {cycle}: {costs[who][-1]:.2f} {outcome.counts}",
                        file=sys.stderr,
                        flush=True,
                    )
            ends = {
                who: lake.catalog.spark.table(f"lake.{sink.name}") for who, sink in sinks.items()
            }
            first = ends["full MERGE"]
            for who, rows in ends.items():
                if rows.exceptAll(first).count() or first.exceptAll(rows).count():
                    raise SystemExit(f"the tables of {who} and of a full MERGE differ")
            rows_now = first.count()
        finally:
            runtime.stop()
    warm = {who: statistics.median(found[len(found) // 2 :]) for who, found in costs.items()}
    for who, found in costs.items():
        line = {
            "contender": who,
            "warm_cpu_seconds": round(warm[who], 2),
            "cycles": [round(c, 2) for c in found],
            "changes": options.changes,
            "rows": rows_now,
            "machine": round(machine, 2),
        }
        keep(options.json, "merge_cycle", line)
    print(
        f"{options.changes:,} changes a cycle, {options.cycles} cycles, {rows_now:,} rows at the "
        f"end; CPU seconds"
    )
    print(versions_line())
    print_table(
        ["", "warm", "of a full MERGE", "each cycle", "machine"],
        [
            [
                who,
                f"{warm[who]:.2f}",
                f"{warm[who] / warm['full MERGE']:.2f}",
                ", ".join(f"{c:.2f}" for c in found),
                f"{machine:.2f}",
            ]
            for who, found in costs.items()
        ],
    )


def cpu_seconds(processes: list[psutil.Process]) -> float:
    """CPU time of processes so far."""
    return sum(
        times.user + times.system for times in (process.cpu_times() for process in processes)
    )


if __name__ == "__main__":
    main()
