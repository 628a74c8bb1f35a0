"""Freshness of a table under a constant rate of changes, with a commit every few seconds.

    python tests/benchmarks/bench_freshness.py --rate 20000 --seconds 600 --interval-ms 5000
        --picture freshness.svg
    python tests/benchmarks/bench_freshness.py --rate 1000 --seconds 120 --interval-ms 2000

Runs a broker, a worker with two upserting tasks, and `cdc_load.py --cycle`, which repeats, at
random and a hundred at a time, change events that it encoded in advance: two of each of 150,000
keys, deletes with tombstones. All run on one machine; the sink gets the CPU time that broker and
generator leave.

*Seen* is when a reader who polls the catalog every 10 ms finds the snapshot. *Commit to visible*
begins when the coordinator writes START_COMMIT to its channel, and therefore includes the time in
which tasks close their files. *Produced to visible* is measured for each record from its timestamp.
The *lag* is the age of the oldest record that is not visible yet, and *behind* is the number of
such records; both are computed once per second. Lag and memory are *flat* if a line through their
samples after the first sixth gains at most a fifth (lag) or a tenth (memory) of its start. At the
end, the table is compared with the expected result of the events.
"""

from __future__ import annotations

import argparse
import itertools
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from array import array
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import cdc_load
import numpy
import psutil
import pyarrow as pa
import pyarrow.compute as pc
from bench_end_to_end import TABLE, TASKS, discard, settle, verify
from catalog_watch import CatalogWatch, Commit
from confluent_kafka import Consumer, Message, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from freshness import Produced, commit_seconds, percentile, trends, visible_at
from lakehouse import Lakehouse
from line_chart import Panel, draw
from loaded_topics import HERE, PARTITIONS, LoadedTopic, sink_config
from process_watch import ProcessWatch, Sampler
from results import DEFAULT_FILE, keep, machine_microseconds, print_table
from worker_process import WorkerProcess

from connect_py.embedded.broker import KafkaBroker
from connect_py.embedded.spark_environment import spark_environment
from connectors.iceberg.protocol.messages import StartCommit, decode

TOPIC = "orders"
NAME = "fresh"
SAMPLE_SECONDS = 1.0
DRIVER_KINDS = ("JVM", "coordinator task")
EARLY, LATE = slice(50, 150), slice(900, 1000)  # commits whose driver CPU is compared
AVERAGED = 20  # commits whose driver CPU is averaged in the picture
PARTS = (0.5, 0.95, 0.99, 1.0)
END_SECONDS = 300.0  # for the last records to come, and to read them all


@dataclass(slots=True)
class Samples:
    """Once a second: CPU seconds and memory of the sink, CPU seconds of the generator and the
    broker."""

    watch: ProcessWatch
    generator: psutil.Process
    broker: psutil.Process
    at_ms: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    driver_cpu: list[float] = field(default_factory=list)  # the JVM and its Python process
    others: list[tuple[float, float]] = field(default_factory=list)
    memory: list[dict[str, float]] = field(default_factory=list)

    def take(self) -> None:
        cpu = self.watch.look(memory=True)
        try:
            others = _cpu_seconds(self.generator), _cpu_seconds(self.broker)
        except psutil.NoSuchProcess:
            return  # the generator is done
        self.at_ms.append(time.time() * 1000)
        self.cpu.append(cpu)
        kinds = self.watch.by_kind()
        self.driver_cpu.append(sum(kinds.get(kind, 0.0) for kind in DRIVER_KINDS))
        self.others.append(others)
        self.memory.append(self.watch.memory())

    @property
    def seconds(self) -> list[float]:
        return [(at - self.at_ms[0]) / 1000 for at in self.at_ms]


def _cpu_seconds(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def start_generator(
    stack: ExitStack, servers: str, topic: LoadedTopic, rate: int
) -> subprocess.Popen[bytes]:
    """Start it; it waits for nobody once its events are encoded. Ended with the stack."""
    command = [
        sys.executable,
        str(HERE / "cdc_load.py"),
        "--bootstrap",
        servers,
        "--topic",
        TOPIC,
        "--tombstones",
        "--cycle",
        str(2 * topic.keys),
        "--keys",
        str(topic.keys),
        "--rate",
        str(rate),
        "-n",
        str(topic.events),
    ]
    generator = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    stack.callback(_end, generator)
    assert generator.stdout is not None
    if generator.stdout.readline() != b"encoded\n":
        raise SystemExit("the generator ended")
    return generator


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.communicate()


def read_to_end(servers: str, *partitions: TopicPartition) -> Iterator[Message]:
    """All records that are in these partitions now."""
    settings = {"group.id": "freshness", "enable.auto.commit": False, "enable.partition.eof": True}
    consumer = Consumer({"bootstrap.servers": servers, **settings})
    consumer.assign(list(partitions))
    ended: set[int] = set()
    deadline = time.monotonic() + END_SECONDS
    while len(ended) < len(partitions):
        if time.monotonic() > deadline:
            raise SystemExit(f"{partitions} could not be read to their ends")
        for message in consumer.consume(10_000, 0.2):
            if message.error() is None:
                yield message
            else:
                ended.add(message.partition())
    consumer.close()


def read_produced(servers: str) -> Produced:
    """The timestamps of all records of the topic."""
    times = {partition: array("q") for partition in range(PARTITIONS)}
    for message in read_to_end(
        servers, *(TopicPartition(TOPIC, partition, 0) for partition in times)
    ):
        times[message.partition()].append(message.timestamp()[1])
    return Produced(times)


def read_starts(servers: str) -> dict[tuple[int, int], int]:
    """Read the start time of each cycle in ms, by epoch and cycle, from the coordinator's
    channel.
    """
    starts: dict[tuple[int, int], int] = {}
    for record in read_to_end(servers, TopicPartition(f"control-iceberg-connect-{NAME}", 0, 0)):
        message = decode(record.value())
        if isinstance(message, StartCommit):
            starts[message.epoch.number, message.cycle] = record.timestamp()[1]
    return starts


def run(
    options: argparse.Namespace, servers: str, broker: KafkaBroker, folder: Path
) -> dict[str, Any]:
    """Produce, watch, verify; the numbers."""
    lake = Lakehouse(folder / "lake")
    topic = LoadedTopic(TOPIC, "json", options.rate * options.seconds, options.keys, {})
    with ExitStack() as stack:
        worker = WorkerProcess(folder, servers, NAME, environment=spark_environment())
        stack.callback(worker.close)
        worker.start()
        watch = ProcessWatch(worker.pid)
        settle(watch)
        machine = machine_microseconds()
        admin = AdminClient({"bootstrap.servers": servers})
        admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])[TOPIC].result(30)
        config = {
            **sink_config(topic, "upsert", ""),
            **lake.sink_config(),
            "tasks.max": str(TASKS),
            "iceberg.control.commit.interval-ms": str(options.interval_ms),
            **dict(o.split("=", 1) for o in options.option),
        }
        worker.put(NAME, config)
        worker.wait_for_states(NAME, *["RUNNING"] * (TASKS + 1))
        catalog = CatalogWatch(lake.directory / "catalog.db", TABLE, TOPIC)
        stack.callback(catalog.close)
        generator = start_generator(stack, servers, topic, options.rate)
        samples = Samples(watch, psutil.Process(generator.pid), psutil.Process(broker.pid))
        samples.take()
        sampler = Sampler(samples.take, SAMPLE_SECONDS)
        try:
            said = generator.communicate(timeout=options.seconds * 1.5 + 60)[0]
        finally:
            sampler.close()
        if generator.returncode:
            raise SystemExit("the generator failed")
        produced = read_produced(servers)
        records = sum(map(len, produced.times.values()))
        deadline = time.monotonic() + END_SECONDS
        while catalog.covered() < records:
            if time.monotonic() > deadline or "FAILED" in worker.states(NAME):
                raise SystemExit(
                    f"{catalog.covered()} of {records} records are in the "
                    f"table\n{worker.log_end(80)}"
                )
            time.sleep(0.2)
        starts = read_starts(servers)
    expected = cdc_load.repeated(topic.events, 2 * topic.keys, topic.keys)
    verify(
        lake, topic, "upsert", pa.Table.from_pylist([row for _, row in sorted(expected.items())])
    )
    lake.assert_ledgers_chain(TABLE)
    commits = catalog.commits
    ages = produced.ages_at_sight(commits)
    seen = [visible_at(commits, at) for at in samples.at_ms]
    return {
        "rate": options.rate,
        "keys": options.keys,
        "seconds": options.seconds,
        "interval_ms": options.interval_ms,
        "records": records,
        "commits": len(commits),
        "machine": round(machine, 2),
        "generator": said.decode().strip(),
        "commit_to_visible": sorted(commit_seconds(commits, starts)),
        "produced_to_visible": dict(
            zip(map(str, PARTS), pc.quantile(ages, PARTS).to_pylist(), strict=True)
        ),
        "sampled": samples.seconds,
        "lag": [
            produced.lag_seconds(at, commit) for at, commit in zip(samples.at_ms, seen, strict=True)
        ],
        "behind": [
            produced.behind(at, commit) for at, commit in zip(samples.at_ms, seen, strict=True)
        ],
        "memory": samples.memory,
        "peak MB": round(watch.peak_total_mb),
        "peaks": watch.peaks(),
        "cpu": samples.cpu,
        "driver_cpu": commit_cpu(samples, commits),
        "files": [(commit.files, commit.snapshots, commit.metadata_files) for commit in commits],
        "commit_at": [(commit.seen_ms - samples.at_ms[0]) / 1000 for commit in commits],
        "others": samples.others,
        "options": options.option,
    }


def commit_cpu(samples: Samples, commits: Sequence[Commit]) -> list[float]:
    """Return the CPU seconds of the driver from each commit to the next, maintenance included."""
    at = [numpy.interp(commit.seen_ms, samples.at_ms, samples.driver_cpu) for commit in commits]
    return [float(after - before) for before, after in itertools.pairwise(at)]


def moving_average(values: Sequence[float]) -> list[float]:
    """Return the mean of each value and of those before it, at most `AVERAGED` together."""
    return [statistics.mean(values[max(0, n - AVERAGED + 1) : n + 1]) for n in range(len(values))]


def cost_picture(found: dict[str, Any]) -> str:
    """Draw the driver's CPU per commit, and the files and snapshots of the table."""
    files, snapshots, metadata = zip(*found["files"][:-1], strict=True)
    return draw(
        f"{found['commits']} commits, one every {found['interval_ms'] / 1000:g} s",
        found["commit_at"][:-1],
        [
            Panel(
                f"CPU seconds of the driver per commit, mean of {AVERAGED}",
                {"driver": moving_average(found["driver_cpu"])},
            ),
            Panel("Data and delete files of the table", {"files": files}),
            Panel(
                "Snapshots and metadata files",
                {"snapshots": snapshots, "metadata files": metadata},
            ),
        ],
    )


def minutes(found: dict[str, Any]) -> list[list[str]]:
    """A row for each minute."""
    rows = []
    at = found["sampled"]
    for minute in range(int(at[-1] // 60) + 1):
        part = [n for n, second in enumerate(at) if 60 * minute <= second < 60 * (minute + 1)]
        if len(part) < 2:
            continue
        lag = sorted(found["lag"][n] for n in part)
        behind = sorted(found["behind"][n] for n in part)
        memory = [sum(found["memory"][n].values()) for n in part]
        first, last = part[0], part[-1]
        seconds = at[last] - at[first]
        cores = [
            (found["cpu"][last] - found["cpu"][first]) / seconds,
            *(
                (found["others"][last][kind] - found["others"][first][kind]) / seconds
                for kind in (0, 1)
            ),
        ]
        rows.append(
            [
                str(minute),
                *(f"{percentile(lag, p):.1f}" for p in (0.5, 0.95, 1)),
                f"{statistics.median(behind):,.0f}",
                f"{behind[-1]:,}",
                f"{statistics.median(memory):.0f}",
                *(f"{c:.2f}" for c in cores),
            ]
        )
    return rows


def picture(found: dict[str, Any]) -> str:
    """Lag, records behind and memory over time."""
    kinds = sorted({kind for sample in found["memory"] for kind in sample})
    memory = {kind: [sample.get(kind, 0.0) for sample in found["memory"]] for kind in kinds}
    title = f"{found['rate']:,} changes a second, a commit every {found['interval_ms'] / 1000:g} s"
    return draw(
        title,
        found["sampled"],
        [
            Panel("Age of the oldest record that nobody sees yet, s", {"lag": found["lag"]}),
            Panel("Records behind", {"behind": found["behind"]}),
            Panel(
                "Memory (PSS), MB", {"all": [sum(s.values()) for s in found["memory"]], **memory}
            ),
        ],
    )


def report(found: dict[str, Any]) -> None:
    """Print it."""
    print(f"{found['records']} records, {found['commits']} commits; {found['generator']}")
    print_table(
        [
            "minute",
            "lag p50",
            "p95",
            "max s",
            "behind p50",
            "max",
            "MB",
            "sink cores",
            "generator",
            "broker",
        ],
        minutes(found),
    )
    for trend in trends(found):
        told = "flat" if trend.flat else "NOT FLAT"
        print(f"{trend.name}: {trend.start:.2f} at first, {trend.gain:+.2f} until the end: {told}")
    cpu = found["driver_cpu"]
    if len(cpu) >= LATE.stop:
        early, late = statistics.mean(cpu[EARLY]), statistics.mean(cpu[LATE])
        print(
            f"driver CPU per commit: {early:.2f} s for commits {EARLY.start} to {EARLY.stop}, "
            f"{late:.2f} s for commits {LATE.start} to {LATE.stop}, ratio {late / early:.2f}"
        )
    commit = found["commit_to_visible"]
    print(
        f"commit to visible, {len(commit)} cycles: median {percentile(commit, 0.5):.2f} s,"
        f" 95 % {percentile(commit, 0.95):.2f} s, at most {percentile(commit, 1):.2f} s"
    )
    median, most, nearly_all, longest = (
        f"{found['produced_to_visible'][str(part)]:.2f} s" for part in PARTS
    )
    print(
        f"produced to visible: median {median}, 95 % {most}, 99 % {nearly_all}, at most {longest}"
    )
    print(f"peak memory of all processes together {found['peak MB']} MB, by kind {found['peaks']}")


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure at one rate."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rate", type=int, default=5_000, help="change events per second")
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument(
        "--keys", type=int, default=150_000, help="half as many as events that are repeated"
    )
    parser.add_argument("--interval-ms", type=int, default=5_000, help="commit interval")
    parser.add_argument(
        "--option", action="append", default=[], help="key=value, one more connector property"
    )
    parser.add_argument("--picture", type=Path, help="SVG file to write")
    parser.add_argument("--cost-picture", type=Path, help="SVG file of the cost of each commit")
    parser.add_argument(
        "--json", type=Path, default=DEFAULT_FILE, help="file that JSON lines are appended to"
    )
    options = parser.parse_args(arguments)
    # ends worker and broker with this process
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    folder = Path(tempfile.mkdtemp(prefix="connect-py-bench-"))
    try:
        with KafkaBroker() as broker:
            found = run(options, broker.bootstrap_servers, broker, folder)
    finally:
        discard(folder)
    keep(options.json, "freshness", found)
    if options.picture:
        options.picture.parent.mkdir(parents=True, exist_ok=True)
        options.picture.write_text(picture(found))
    if options.cost_picture:
        options.cost_picture.parent.mkdir(parents=True, exist_ok=True)
        options.cost_picture.write_text(cost_picture(found))
    report(found)


if __name__ == "__main__":
    main()
