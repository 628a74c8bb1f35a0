"""The effect of maintenance while changes arrive: on files, deletes, snapshots, and read times.

    python tests/benchmarks/bench_maintenance.py --seconds 900 --picture
        docs/images/maintenance.svg

Runs a worker with two upsert connectors on one topic, with a commit every five seconds: one table
is maintained, the other is not. Both are sampled every two seconds. At the end, Spark alternately
reads each table and a rewritten copy: the current state, the state with the most files, and the
states at twelve earlier times.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench_end_to_end import discard
from exactly_once_events import ChangeFeed, check_upserts, connector_config, expected_upserts
from kafka_offsets import caught_up
from lakehouse import Lakehouse
from line_chart import Panel, draw
from results import DEFAULT_FILE, keep, machine_microseconds, print_table
from worker_process import WorkerProcess

from connect_py.embedded.broker import KafkaBroker
from connect_py.embedded.java_runtime import find_java
from connect_py.embedded.spark_environment import spark_environment

TOPIC = "orders"
TABLES = {"maintained": "db.maintained", "plain": "db.plain"}
POLICY = {
    "enabled": "true",
    "interval": "3s",
    "small-files": "4",
    "delete-ratio": "0.1",
    "snapshots": "60",
    "keep": "30s",
    "keep-snapshots": "10",
    "manifests": "40",
}
LOOK_SECONDS = 2.0
COUNTS = ("data files", "delete files", "snapshots")


@dataclass(slots=True)
class Samples:
    """Samples of both tables."""

    lake: Lakehouse
    seconds: list[float] = field(default_factory=list)
    counts: dict[str, list[dict[str, int]]] = field(
        default_factory=lambda: {name: [] for name in TABLES}
    )

    def take(self, second: float) -> None:
        self.seconds.append(second)
        for name, table in TABLES.items():
            self.counts[name].append(look(self.lake, table))

    def line(self, name: str, count: str) -> list[float]:
        return [float(each[count]) for each in self.counts[name]]


def look(lake: Lakehouse, name: str) -> dict[str, int]:
    """Read the metadata of a table's head."""
    table = lake.table(name)
    head = table.current_snapshot() if table is not None else None
    if table is None or head is None or head.summary is None:
        return dict.fromkeys(COUNTS, 0)
    said = head.summary.additional_properties
    return {
        "data files": int(said.get("total-data-files", "0")),
        "delete files": int(said.get("total-delete-files", "0")),
        "snapshots": len(table.snapshots()),
    }


def run(
    options: argparse.Namespace, broker: KafkaBroker, folder: Path
) -> tuple[Samples, dict[str, Any]]:
    """Produce, look, verify, read."""
    lake, servers = Lakehouse(folder / "lake"), broker.bootstrap_servers
    worker = WorkerProcess(folder, servers, "maintenance", environment=spark_environment())
    feed = None
    samples = Samples(lake)
    try:
        worker.start()
        feed = ChangeFeed(
            servers,
            [TOPIC],
            "json",
            options.keys,
            options.rate,
            limit=options.seconds * options.rate,
        )
        for name, table in TABLES.items():
            config = connector_config(TOPIC, "json", "upsert", table, "", lake.sink_config())
            config["iceberg.control.commit.interval-ms"] = "5000"
            if name == "maintained":
                config |= {f"iceberg.ext.maintenance.{key}": text for key, text in POLICY.items()}
            worker.put(name, config)
        started = time.monotonic()
        while feed.running or not all(caught_up(servers, name, TOPIC) for name in TABLES):
            samples.take(time.monotonic() - started)
            if time.monotonic() - started > 2 * options.seconds + 300:
                raise SystemExit(f"the tables do not catch up\n{worker.log_end(80)}")
            time.sleep(LOOK_SECONDS)
        produced = feed.wait(60)
        time.sleep(60)  # for the last round
        samples.take(time.monotonic() - started)
        worker.stop()
        for table in TABLES.values():
            check_upserts(lake.rows(table), expected_upserts(produced, options.keys))
        reads = read_times(lake, list(TABLES.values()))
    finally:
        if feed is not None:
            feed.close()
        worker.close()
    return samples, {"events": produced, "reads": reads}


def read_times(lake: Lakehouse, tables: list[str]) -> dict[str, dict[str, list[float]]]:
    """Seconds of full reads by Spark."""
    fixtures = Path(__file__).parents[1] / "fixtures"
    environment = {
        **os.environ,
        "JAVA_HOME": str(find_java().path.parents[1]),
        "PYTHONPATH": str(fixtures),
    }
    command = [
        sys.executable,
        str(Path(__file__).with_name("read_times.py")),
        str(lake.directory),
        *tables,
    ]
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, check=False, timeout=1200
    )
    if done.returncode:
        raise SystemExit(done.stderr[-4000:])
    found: dict[str, dict[str, list[float]]] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


def main() -> None:
    """Run, and print what both tables had."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=int, default=90)
    parser.add_argument("--rate", type=int, default=500, help="events a second")
    parser.add_argument("--keys", type=int, default=50_000)
    parser.add_argument("--picture", type=Path, help="SVG file to write")
    parser.add_argument(
        "--json", type=Path, default=DEFAULT_FILE, help="file that JSON lines are appended to"
    )
    options = parser.parse_args()
    # ends worker and broker with this process
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    folder = Path(tempfile.mkdtemp(prefix="connect-py-bench-"))
    try:
        with KafkaBroker() as broker:
            machine = machine_microseconds()
            samples, measured = run(options, broker, folder)
    finally:
        discard(folder)
    rows = []
    for name, table in TABLES.items():
        reads = measured["reads"][table]
        ratio, worst = (
            statistics.median(reads[key]) / statistics.median(reads["copy"])
            for key in ("table", "worst")
        )
        measured[f"{name} read ratio"], measured[f"{name} worst read ratio"] = ratio, worst
        moments = measured[f"{name} read ratios"] = sorted(reads["moments"])
        counts = [
            f"{max(samples.line(name, each)):,.0f} / {samples.line(name, each)[-1]:,.0f}"
            for each in COUNTS
        ]
        rows.append(
            [
                name,
                *counts,
                f"{statistics.median(reads['table']):.3f}",
                f"{ratio:.2f}",
                f"{statistics.median(moments):.2f} / {moments[-1]:.2f}",
                f"{worst:.2f}",
            ]
        )
    print(f"{measured['events']} events, tables exact")
    header = [
        "table",
        *(f"{each}, most / at the end" for each in COUNTS),
        "read s",
        "to a new copy",
        "12 moments, median / most",
        "most files",
    ]
    print_table(header, rows)
    keep(
        options.json,
        "maintenance",
        {"machine": round(machine, 2), **measured, "counts": samples.counts},
    )
    if options.picture is not None:
        panels = [
            Panel(each, {name: samples.line(name, each) for name in TABLES}) for each in COUNTS
        ]
        title = "With maintenance and without: files, deletes and snapshots"
        options.picture.write_text(draw(title, samples.seconds, panels))


if __name__ == "__main__":
    main()
