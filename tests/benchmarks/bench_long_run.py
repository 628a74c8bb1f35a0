"""Memory and cost of a worker that commits for hours: heap, code cache, metaspace, and Python.

    python tests/benchmarks/bench_long_run.py --seconds 7200 --interval-ms 24000 --picture long.svg
    python tests/benchmarks/bench_long_run.py --java-option=-XX:TieredStopAtLevel=4

A broker, a worker with two tasks, and one connector that upserts the records of four topics into
four tables: with the default interval, 600 commits per hour. Every sample asks the driver's JVM for
a garbage collection first, so that the heap is the one in use. At the end, each table is compared
with the last record of each key.

*Flat* means that a line through the samples after the first sixth gains at most a tenth of its
start.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
from bench_end_to_end import TASKS, discard
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from freshness import Trend
from lakehouse import Lakehouse
from line_chart import Panel, draw
from process_watch import ProcessWatch
from results import DEFAULT_FILE, keep
from worker_process import WorkerProcess

from connect_py.embedded.broker import KafkaBroker
from connect_py.embedded.spark_environment import spark_environment

NAME = "long-run"
TABLES = ("customers", "orders", "items", "payments")
PARTITIONS = 2
SAMPLE_SECONDS = 60.0
END_SECONDS = 300.0  # for the last records
TOLERANCE, LEAST_MB = 0.1, 5.0  # a line is flat if it gains at most the larger of the two
_JVM_FIGURES = {  # jcmd's command, and the used kB in its output
    "heap": ("GC.heap_info", r"(?:heap|generation) +total \d+K, used (\d+)K"),
    "code cache": ("Compiler.codecache", r"size=\d+Kb used=(\d+)Kb"),
    "metaspace": ("GC.heap_info", r"Metaspace +used (\d+)K"),
}


class Load:
    """A thread that produces upserts to every topic at a constant rate until it is closed."""

    def __init__(self, servers: str, rate: int, keys: int) -> None:
        self.last: dict[str, dict[int, int]] = {table: {} for table in TABLES}  # value by key
        self._producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True})
        self._rate, self._keys = rate, keys
        self._random = random.Random(1)
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="load")
        self._thread.start()

    def _run(self) -> None:
        value = 0
        while not self._ending.wait(1.0):
            for table in TABLES:
                for _ in range(self._rate):
                    key, value = self._random.randrange(self._keys), value + 1
                    record = {"id": key, "value": value, "note": f"note {value % 1000} of {key}"}
                    partition = key % PARTITIONS
                    self._producer.produce(table, json.dumps(record), str(key), partition)
                    self.last[table][key] = value
            self._producer.poll(0)

    def close(self) -> None:
        """Stop, and wait for the broker to acknowledge every record."""
        self._ending.set()
        self._thread.join()
        if self._producer.flush(60):
            raise SystemExit("the broker did not acknowledge every record")


@dataclass(slots=True)
class Samples:
    """Figures of the driver's JVM, and CPU seconds and memory of the worker's processes."""

    watch: ProcessWatch
    seconds: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    memory: list[dict[str, float]] = field(default_factory=list)  # PSS in MB, by kind of process
    jvm: dict[str, list[float]] = field(default_factory=dict)  # MB

    def take(self, at: float) -> None:
        driver = self._driver()
        if driver is None:
            return
        try:
            figures = jvm_figures(driver)
        except subprocess.CalledProcessError as error:  # the JVM is starting
            print(f"no sample: {error.stderr.strip()}", file=sys.stderr)
            return
        self.cpu.append(self.watch.look(memory=True))
        self.seconds.append(at)
        self.memory.append(self.watch.memory())
        for name, figure in figures.items():
            self.jvm.setdefault(name, []).append(figure)

    def _driver(self) -> int | None:
        for process in psutil.Process(self.watch.pid).children(recursive=True):
            if process.name() == "java":
                return process.pid
        return None


def jvm_figures(pid: int) -> dict[str, float]:
    """Used MB of the heap after a collection, the code cache, and the metaspace of a JVM."""
    jcmd = Path(psutil.Process(pid).exe()).with_name("jcmd")

    def ask(command: str) -> str:
        arguments = [str(jcmd), str(pid), command]
        return subprocess.run(arguments, capture_output=True, text=True, check=True).stdout

    ask("GC.run")
    figures = {}
    for name, (command, pattern) in _JVM_FIGURES.items():
        used = re.findall(pattern, ask(command))
        if not used:
            raise SystemExit(f"jcmd {command} does not report the {name}")
        figures[name] = sum(map(int, used)) / 1000
    return figures


def run(options: argparse.Namespace, servers: str, folder: Path) -> dict[str, Any]:
    """Produce and sample for the given time, verify the tables, and return the figures."""
    lake = Lakehouse(folder / "lake")
    properties = {"connect_py.spark.driver.extraJavaOptions": " ".join(options.java_option)}
    with ExitStack() as stack:
        worker = WorkerProcess(
            folder,
            servers,
            NAME,
            {key: value for key, value in properties.items() if value},
            environment=spark_environment(),
        )
        stack.callback(worker.close)
        worker.start()
        samples = Samples(ProcessWatch(worker.pid))
        admin = AdminClient({"bootstrap.servers": servers})
        for created in admin.create_topics([NewTopic(t, PARTITIONS, 1) for t in TABLES]).values():
            created.result(30)
        worker.put(NAME, {**config(options), **lake.sink_config()})
        worker.wait_for_states(NAME, *["RUNNING"] * (TASKS + 1))
        load = Load(servers, options.rate, options.keys)
        start = time.monotonic()
        try:
            while (elapsed := time.monotonic() - start) < options.seconds:
                samples.take(elapsed)
                print(f"{elapsed:5.0f} s: {progress(samples)}", flush=True)
                time.sleep(max(0.0, start + elapsed + SAMPLE_SECONDS - time.monotonic()))
        finally:
            load.close()
        commits = await_rows(worker, lake, load)
    return {
        "seconds": options.seconds,
        "interval_ms": options.interval_ms,
        "rate": options.rate,
        "java_options": options.java_option,
        "commits": commits,
        "sampled": samples.seconds,
        "cpu": samples.cpu,
        "memory": samples.memory,
        "jvm": samples.jvm,
    }


def config(options: argparse.Namespace) -> dict[str, str]:
    """Return the connector's configuration without its catalog."""
    return {
        "connector.class": "org.apache.iceberg.connect.IcebergSinkConnector",
        "tasks.max": str(TASKS),
        "topics": ",".join(TABLES),
        "key.converter": "org.apache.kafka.connect.storage.StringConverter",
        "value.converter": "org.apache.kafka.connect.json.JsonConverter",
        "value.converter.schemas.enable": "false",
        "iceberg.ext.topic-to-table": "(.*):db.{1}",
        "iceberg.tables.auto-create-enabled": "true",
        "iceberg.tables.upsert-mode-enabled": "true",
        "iceberg.tables.default-id-columns": "id",
        "iceberg.control.commit.interval-ms": str(options.interval_ms),
        **dict(option.split("=", 1) for option in options.option),
    }


def progress(samples: Samples) -> str:
    """Return the newest figures in one line."""
    if not samples.seconds:
        return "no driver yet"
    jvm = ", ".join(f"{name} {figures[-1]:.0f} MB" for name, figures in samples.jvm.items())
    memory = samples.memory[-1]
    pss = ", ".join(f"{kind} {size:.0f}" for kind, size in sorted(memory.items()))
    total = sum(memory.values())
    return f"{jvm}; PSS {total:.0f} MB ({pss}); {samples.cpu[-1]:.0f} CPU seconds"


def await_rows(worker: WorkerProcess, lake: Lakehouse, load: Load) -> int:
    """Wait until each table has the last value of each key; return the number of commits."""
    deadline = time.monotonic() + END_SECONDS
    for table, last in load.last.items():
        while (rows := values(lake, table)) != last:
            if time.monotonic() > deadline or "FAILED" in worker.states(NAME):
                raise SystemExit(
                    f"table db.{table} has {len(rows)} keys instead of {len(last)}, or other "
                    f"values\n{worker.log_end(80)}"
                )
            time.sleep(1.0)
    return sum(len(lake.ledgers(f"db.{table}")) for table in TABLES)


def values(lake: Lakehouse, table: str) -> dict[int, int]:
    """Return the value of each key of a table; nothing before it is created."""
    rows = lake.rows(f"db.{table}")
    if "id" not in rows.column_names:
        return {}
    return dict(zip(rows["id"].to_pylist(), rows["value"].to_pylist(), strict=True))


def lines(figures: dict[str, Any]) -> dict[str, list[float]]:
    """Return the sampled memory in MB by its owner."""
    kinds = sorted({kind for sample in figures["memory"] for kind in sample})
    return {
        **{f"{name} of the JVM": line for name, line in figures["jvm"].items()},
        **{f"PSS: {k}": [s.get(k, 0.0) for s in figures["memory"]] for k in kinds},
        "PSS: all": [sum(sample.values()) for sample in figures["memory"]],
    }


def trends_of(figures: dict[str, Any]) -> list[Trend]:
    """Return the trend of each line after the first sixth of the run."""
    at = figures["sampled"]
    first = next(number for number, second in enumerate(at) if second >= at[-1] / 6)
    return [
        Trend.of(name, at[first:], line[first:], TOLERANCE, LEAST_MB)
        for name, line in lines(figures).items()
    ]


def picture(figures: dict[str, Any]) -> str:
    """Draw memory and cores over time."""
    memory, at = lines(figures), figures["sampled"]
    cores = [0.0] + [
        (after - before) / (end - start)
        for before, after, start, end in zip(
            figures["cpu"], figures["cpu"][1:], at, at[1:], strict=False
        )
    ]
    title = f"{figures['commits']} commits to four tables, one every {figures['interval_ms']} ms"
    jvm = {name: line for name, line in memory.items() if not name.startswith("PSS")}
    pss = {name: line for name, line in memory.items() if name.startswith("PSS")}
    return draw(
        title,
        at,
        [
            Panel("Memory of the driver's JVM in use, MB", jvm),
            Panel("Memory of the processes (PSS), MB", pss),
            Panel("Cores in use", {"cores": cores}),
        ],
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Run once and print the figures."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=int, default=600)
    parser.add_argument("--rate", type=int, default=40, help="records per second and topic")
    parser.add_argument("--keys", type=int, default=200_000)
    parser.add_argument("--interval-ms", type=int, default=24_000, help="commit interval")
    parser.add_argument(
        "--java-option", action="append", default=[], help="one more option of the driver's JVM"
    )
    parser.add_argument(
        "--option", action="append", default=[], help="key=value, one more connector property"
    )
    parser.add_argument("--picture", type=Path, help="SVG file to write")
    parser.add_argument(
        "--json", type=Path, default=DEFAULT_FILE, help="file that JSON lines are appended to"
    )
    options = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # the worker and the broker end as well
    folder = Path(tempfile.mkdtemp(prefix="connect-py-bench-"))
    try:
        with KafkaBroker() as broker:
            figures = run(options, broker.bootstrap_servers, folder)
    finally:
        discard(folder)
    keep(options.json, "long run", figures)
    if options.picture:
        options.picture.parent.mkdir(parents=True, exist_ok=True)
        options.picture.write_text(picture(figures))
    for each in trends_of(figures):
        verdict = "flat" if each.flat else "NOT FLAT"
        print(f"{each.name}: {each.start:.0f} MB at first, {each.gain:+.0f} MB: {verdict}")
    minutes = (figures["sampled"][-1] - figures["sampled"][0]) / 60
    cpu = figures["cpu"][-1] - figures["cpu"][0]
    print(f"{figures['commits']} commits, {cpu:.0f} CPU seconds in {minutes:.0f} minutes")


if __name__ == "__main__":
    main()
