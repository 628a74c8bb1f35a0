"""The cost of a cycle with few changes in a large table: 10,000 random rows of 10,000,000.

    python tests/benchmarks/bench_large_table.py [--rows 10000000] [--changes 10000] [--cycles
        12]

Spark creates the table: format v3, rows in key order, 20 files. Then, a worker with two tasks
upserts changes of random keys, nine updates per delete, one cycle at a time: the next changes are
produced when the table covers the previous ones. The CPU time includes the worker and all its
descendants with the JVM, from the moment before the changes are produced until the machine is idle
after their commit. *warm* is the median of the cycles' second half. At the end, the table is
compared with the expected result of the changes.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import cdc_load
import pyarrow as pa
import pyarrow.compute as pc
from bench_end_to_end import TABLE, TASKS, covered_by_ledger, discard, settle
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from lakehouse import Lakehouse
from loaded_topics import PARTITIONS, LoadedTopic, sink_config
from process_watch import ProcessWatch
from results import DEFAULT_FILE, keep, machine_microseconds, print_table
from worker_process import WorkerProcess

from connect_py.embedded.broker import KafkaBroker
from connect_py.embedded.java_runtime import find_java
from connect_py.embedded.spark_environment import spark_environment

CYCLE_SECONDS = 60.0
LOOK_SECONDS = 0.1
REST_SECONDS = 0.5  # after a commit: group offsets, the next empty cycle
TOPIC = "orders"


class Changes:
    """Random changes of a table's keys, and their expected result."""

    def __init__(self, bootstrap_servers: str, rows: int) -> None:
        """Create the topic."""
        admin = AdminClient({"bootstrap.servers": bootstrap_servers})
        admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])[TOPIC].result(30)
        self._producer = Producer(
            {"bootstrap.servers": bootstrap_servers, "partitioner": "murmur2_random"}
        )
        self._key, self._value = cdc_load.encoder("json", None, TOPIC)
        self._random = random.Random(11)
        self._rows = rows
        self.left: dict[int, int | None] = {}  # changed key -> `updated_at`; None: deleted
        self.records = 0

    def produce(self, count: int, cycle: int) -> None:
        """Change so many keys, each once, all of them at one moment: two cycles would both search
        the table."""
        messages = []
        for number, key in enumerate(self._random.sample(range(self._rows), count)):
            row = cdc_load.row(self._random, key, cycle + 1)
            deleted = number % 10 == 0
            event = cdc_load.envelope(
                self.records + number, "d" if deleted else "u", row, None if deleted else row
            )
            self.left[key] = None if deleted else row["updated_at"]
            messages.append({"key": self._key(key), "value": self._value(event)})
            if deleted:
                messages.append({"key": self._key(key), "value": None})
        self.records += len(messages)
        assert self._producer.produce_batch(TOPIC, messages) == len(messages)
        self._producer.flush()

    def close(self) -> None:
        self._producer.close()

    def verify(self, lake: Lakehouse) -> None:
        """Compare the whole table's keys, and the newest value of each changed one.

        Raises:
            SystemExit: They differ.
        """
        table = lake.table(TABLE)
        assert table is not None
        found = table.scan(selected_fields=("id", "updated_at")).to_arrow()
        changed = [key for key, value in self.left.items() if value is not None]
        expected = self._rows - (len(self.left) - len(changed))
        unique = pc.count_distinct(found["id"]).as_py()
        if not found.num_rows == unique == expected:
            raise SystemExit(f"{found.num_rows} rows of {unique} keys, expected {expected}")
        rows = found.filter(pc.is_in(found["id"], value_set=pa.array(self.left, pa.int64())))
        if dict(zip(*rows.to_pydict().values(), strict=True)) != {
            key: self.left[key] for key in changed
        }:
            raise SystemExit("changed rows are not as expected")


def make_table(lake: Lakehouse, rows: int, files: int) -> None:
    """Create the table with Spark in a separate process."""
    program = str(Path(__file__).with_name("large_table.py"))
    environment = {
        **os.environ,
        "JAVA_HOME": str(find_java().path.parents[1]),
        "PYTHONPATH": str(Path(__file__).parents[1] / "fixtures"),
    }
    command = [sys.executable, program, str(lake.directory), str(rows), str(files)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr[-4000:])


def cycles(
    changes: Changes,
    worker: WorkerProcess,
    watch: ProcessWatch,
    lake: Lakehouse,
    count: int,
    each: int,
) -> Iterator[dict[str, float]]:
    """Change rows, wait until they are in the table, and return the cost.

    Raises:
        SystemExit: The connector fails, or it takes too long.
    """
    for cycle in range(count):
        before, by_kind = watch.look(memory=True), watch.by_kind()
        started = time.monotonic()
        changes.produce(each, cycle)
        topic = LoadedTopic(TOPIC, "json", 0, 0, dict.fromkeys(range(PARTITIONS), 0))
        while covered_by_ledger(lake, topic) < changes.records:
            if time.monotonic() - started > CYCLE_SECONDS:
                raise SystemExit(f"cycle {cycle} is not in the table\n{worker.log_end(80)}")
            time.sleep(LOOK_SECONDS)
        elapsed = time.monotonic() - started
        time.sleep(REST_SECONDS)
        total = watch.look(memory=True)
        spent = {
            kind: round(seconds - by_kind.get(kind, 0.0), 2)
            for kind, seconds in watch.by_kind().items()
        }
        yield {
            "cpu_seconds": round(total - before, 3),
            "elapsed_seconds": round(elapsed, 2),
            **spent,
        }


def main() -> None:
    """Create the table, change it, and print the cost of each cycle."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--files", type=int, default=20)
    parser.add_argument("--changes", type=int, default=10_000)
    parser.add_argument("--cycles", type=int, default=8)
    parser.add_argument("--interval-ms", default="2000", help="commit interval")
    parser.add_argument(
        "--option", action="append", default=[], help="key=value, one more connector property"
    )
    parser.add_argument(
        "--json", type=Path, default=DEFAULT_FILE, help="file that JSON lines are appended to"
    )
    options = parser.parse_args()
    # ends worker and broker with this process
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    folder = Path(tempfile.mkdtemp(prefix="connect-py-bench-"))
    lake = Lakehouse(folder / "lake")
    worker = None
    try:
        started = time.monotonic()
        make_table(lake, options.rows, options.files)
        print(
            f"{options.rows} rows were made in {time.monotonic() - started:.0f} s",
            file=sys.stderr,
            flush=True,
        )
        with KafkaBroker() as broker:
            changes = Changes(broker.bootstrap_servers, options.rows)
            worker = WorkerProcess(
                folder, broker.bootstrap_servers, "large", environment=spark_environment()
            )
            worker.start()
            watch = ProcessWatch(worker.pid)
            settle(watch)
            machine = machine_microseconds()
            topic = LoadedTopic(TOPIC, "json", 0, 0, {})
            config = {
                **sink_config(topic, "upsert", ""),
                **lake.sink_config(),
                "tasks.max": str(TASKS),
                "iceberg.control.commit.interval-ms": options.interval_ms,
                **dict(o.split("=", 1) for o in options.option),
            }
            worker.put("large", config)
            lines = []
            for line in cycles(changes, worker, watch, lake, options.cycles, options.changes):
                lines.append(line)
                print(line, file=sys.stderr, flush=True)
            changes.close()
            worker.close()
        changes.verify(lake)
    finally:
        if worker is not None:
            worker.close()
        discard(folder)
    warm = statistics.median(line["cpu_seconds"] for line in lines[len(lines) // 2 :])
    kinds = sorted({key for line in lines for key in line} - {"cpu_seconds", "elapsed_seconds"})
    keep(
        options.json,
        "large table",
        {
            "rows": options.rows,
            "files": options.files,
            "changes": options.changes,
            "cycles": lines,
            "warm": warm,
            "MB": round(watch.peak_total_mb),
            "peaks": watch.peaks(),
            "machine": round(machine, 2),
            "options": options.option,
        },
    )
    print(
        f"{options.changes} changes a cycle in {options.rows} rows: {warm:.2f} CPU s warm, "
        f"{watch.peak_total_mb:.0f} MB"
    )
    rows = [
        [
            str(number),
            f"{line['cpu_seconds']:.2f}",
            *(f"{line.get(kind, 0):.2f}" for kind in kinds),
            line["elapsed_seconds"],
        ]
        for number, line in enumerate(lines)
    ]
    print_table(["cycle", "CPU s", *kinds, "seconds"], rows)


if __name__ == "__main__":
    main()
