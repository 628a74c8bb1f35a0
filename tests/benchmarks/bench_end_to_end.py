"""The complete sink, from a full topic to the table: a regular worker, two tasks, coordinator,
Spark, and Iceberg.

    python tests/benchmarks/bench_end_to_end.py [-n 1000000] [--formats json] [--modes
        append,upsert] [--repeat 3]

Starts a broker, loads it, starts `connect-distributed`, creates the connector, and waits until the
table covers the topic. Append gets all events at once; upsert gets the next 200,000 events whenever
the table covers the previous events; therefore cycles have this size on any machine that processes
them within the commit interval. The CPU time includes the worker and all its descendants with the
JVM, but not the broker, from the creation of the connector. There are two results: the complete
run, in which the JVM starts and compiles, and the steady rate, the slope of the run's second half.
The table's content is verified. Each run prints a JSON line; the table shows medians.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1] / "fixtures"))
import cdc_load
import loaded_topics
import pyarrow as pa
import pyarrow.compute as pc
from lakehouse import LEDGER, Lakehouse
from loaded_topics import FORMATS, MODES, Feed, FullTopic, LoadedTopic
from process_watch import ProcessWatch, Sampler
from results import DEFAULT_FILE, keep, machine_microseconds, medians, print_table
from spark_elsewhere import StandaloneCluster
from worker_process import WorkerProcess

from connect_py.embedded.broker import KafkaBroker
from connect_py.embedded.spark_environment import spark_environment

TABLE = "db.orders"
SUMMED = ("id", "customer_id", "quantity")
Expected = pa.Table | dict[str, int]
TASKS = 2
DEADLINE_SECONDS = 900.0
SAMPLE_SECONDS = 1.0
IDLE_CPU_SECONDS = 0.1  # per sample, at most, of a worker without connectors


@dataclass(slots=True)
class Progress:
    """Samples of a run: elapsed seconds, CPU seconds, records that the table covers."""

    topic: LoadedTopic
    watch: ProcessWatch
    look: Callable[[], int]  # records that the table covers
    started: float = field(default_factory=time.monotonic)
    samples: list[tuple[float, float, int]] = field(default_factory=list)

    def sample(self) -> None:
        cpu = self.watch.look(memory=True)
        self.samples.append((time.monotonic() - self.started, cpu, self.look()))

    @property
    def covered(self) -> int:
        """Records that the table covers, by the last sample."""
        return self.samples[-1][2]

    def rates(self) -> tuple[float, float]:
        """Events per CPU second: whole run, and from the first commit beyond the half of the topic
        to the last one.

        Whoever commits all of the second half at once has no slope: 0.
        """
        events = self.topic.events / self.topic.records
        total = self.samples[-1][1] - self.samples[0][1]
        last = next(s for s in self.samples if s[2] >= self.topic.records)
        half = next(s for s in self.samples if s[2] >= self.topic.records / 2)
        slope = (last[2] - half[2]) * events / (last[1] - half[1]) if last[2] > half[2] else 0.0
        return self.topic.events / total, slope


def covered_by_ledger(lake: Lakehouse, topic: LoadedTopic) -> int:
    """Records below the positions in the newest snapshot's ledger."""
    table = lake.table(TABLE)
    snapshot = table.current_snapshot() if table is not None else None
    if snapshot is None or snapshot.summary is None:
        return 0
    summary = snapshot.summary.additional_properties
    ledger = json.loads(
        next((v for k, v in summary.items() if k.startswith(LEDGER)), '{"topics":{}}')
    )
    positions = ledger["topics"].get(topic.name, {"p": {}})["p"]
    return sum(int(positions[str(p)][2]) for p in topic.ends if str(p) in positions)


@dataclass(frozen=True, slots=True)
class Bench:
    """Resources that all runs share."""

    broker: KafkaBroker
    registry_url: str
    options: Mapping[str, str]  # connector properties
    # workers of a Spark cluster, with a core each, that commits; 0: the worker's own driver does
    cluster: int = 0


def run(
    bench: Bench, feed: Feed | FullTopic, mode: str, heading: str, expected: Expected
) -> dict[str, object]:
    """Run one worker until the table is complete."""
    topic = feed.topic
    machine = machine_microseconds()
    folder = Path(tempfile.mkdtemp(prefix="connect-py-bench-"))
    lake = Lakehouse(folder / "lake")
    environment = spark_environment()
    worker = WorkerProcess(folder, bench.broker.bootstrap_servers, heading, environment=environment)
    cluster = (
        StandaloneCluster(folder / "spark", environment, bench.cluster) if bench.cluster else None
    )
    spark = (
        {"iceberg.spark.master": cluster.url, "iceberg.spark.cores.max": str(bench.cluster)}
        if cluster
        else {}
    )
    try:
        feed.copy_step()
        worker.start()
        watch = ProcessWatch(worker.pid, tuple(cluster.pids) if cluster else ())
        settle(watch)
        progress = Progress(topic, watch, partial(covered_by_ledger, lake, topic))
        progress.sample()
        config = {
            **loaded_topics.sink_config(topic, mode, bench.registry_url),
            **lake.sink_config(),
            "tasks.max": str(TASKS),
            **spark,
            **bench.options,
        }
        worker.put(heading, config)
        follow(
            progress, feed, lambda: "FAILED" in worker.states(heading), partial(worker.log_end, 80)
        )
        whole, steady = progress.rates()
        cycles = lake.assert_ledgers_chain(TABLE)
        verify(lake, topic, mode, expected)
        return {
            "format": topic.form,
            "mode": mode,
            "events": topic.events,
            "records": topic.records,
            "cycles": cycles,
            "whole": round(whole),
            "steady": round(steady),
            "elapsed_seconds": round(progress.samples[-1][0], 1),
            "start_cpu_seconds": round(progress.samples[0][1], 2),
            "cpu_by_kind": watch.by_kind(),
            **{f"{kind} MB": value for kind, value in watch.peaks().items()},
            "MB": round(watch.peak_total_mb),
            "machine": round(machine, 2),
            "cluster": bench.cluster,
            "options": dict(bench.options),
            "steps": feed.steps,
            "samples": [(round(t, 1), round(c, 2), n) for t, c, n in progress.samples],
        }
    finally:
        worker.close()
        if cluster is not None:
            cluster.stop()
        discard(folder)


def discard(folder: Path) -> None:
    """Remove the files of a run, unless they are to be kept."""
    if os.environ.get("CONNECT_PY_BENCH_KEEP"):
        print(f"kept {folder}", file=sys.stderr)
    else:
        shutil.rmtree(folder, ignore_errors=True)


def follow(
    progress: Progress,
    feed: Feed | FullTopic,
    failed: Callable[[], bool],
    log_end: Callable[[], str],
) -> None:
    """Feed, and sample each second, until the table covers the topic.

    Raises:
        SystemExit: It failed, or took too long.
    """
    sampler = Sampler(progress.sample, SAMPLE_SECONDS)
    try:
        deadline = time.monotonic() + DEADLINE_SECONDS
        while progress.covered < feed.topic.records:
            if progress.covered >= feed.fed and not feed.ended:
                feed.copy_step()
            if time.monotonic() > deadline or failed():
                raise SystemExit(
                    f"{feed.topic.name} is not complete: {progress.samples[-1:]}\n{log_end()}"
                )
            time.sleep(SAMPLE_SECONDS)
    finally:
        sampler.close()


def settle(watch: ProcessWatch) -> None:
    """Wait until the worker's start is over: it answers before the server has imported what tasks
    fork from."""
    before, now = 0.0, watch.look()
    while now - before > IDLE_CPU_SECONDS:
        time.sleep(SAMPLE_SECONDS)
        before, now = now, watch.look()


def verify(lake: Lakehouse, topic: LoadedTopic, mode: str, expected: Expected) -> None:
    """Compare the table with the expected result of the load.

    Raises:
        SystemExit: They differ.
    """
    rows = lake.rows(TABLE)
    if isinstance(expected, dict):
        found = {"rows": rows.num_rows, **{name: pc.sum(rows[name]).as_py() for name in SUMMED}}
        if found != expected:
            raise SystemExit(f"{mode} from {topic.form}: {found}, expected {expected}")
        return
    rows = rows.select(expected.column_names).sort_by("id")
    if rows.num_rows != expected.num_rows:
        raise SystemExit(f"{rows.num_rows} rows, expected {expected.num_rows}")
    for name in expected.column_names:
        if not pc.all(pc.equal(rows[name].cast(expected[name].type), expected[name])).as_py():
            raise SystemExit(f"column {name} of {mode} from {topic.form} is not as expected")


def expected_content(topic: LoadedTopic, mode: str) -> Expected:
    """Return the last state of each key for upserts; the count and some sums for appended
    events.
    """
    if mode == "upsert":
        rows = [row for _, row in sorted(cdc_load.expected(topic.events, topic.keys).items())]
        return pa.Table.from_pylist(rows)
    sums = dict.fromkeys(SUMMED, 0)
    for _, event in cdc_load.events(topic.events, topic.keys):
        row = event["after"] or event["before"]  # a delete is a row, too: as it was
        for name in SUMMED:
            sums[name] += row[name]
    return {"rows": topic.events, **sums}


def main() -> None:
    """Measure every wanted format and mode."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("-n", "--events", type=int, default=400_000)
    parser.add_argument("--formats", default="json")
    parser.add_argument("--modes", default=",".join(MODES))
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("--interval-ms", default="4000", help="commit interval")
    parser.add_argument(
        "--step",
        type=int,
        default=200_000,
        help="events that upserts are fed with at a time, a cycle",
    )
    parser.add_argument(
        "--option", action="append", default=[], help="key=value, one more connector property"
    )
    parser.add_argument(
        "--cluster",
        type=int,
        default=0,
        help="commit on a Spark cluster of so many workers of a core",
    )
    parser.add_argument(
        "--json", type=Path, default=DEFAULT_FILE, help="file that JSON lines are appended to"
    )
    options = parser.parse_args()
    assert set(options.formats.split(",")) <= set(FORMATS)
    # ends worker and broker with this process
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    more = {
        "iceberg.control.commit.interval-ms": options.interval_ms,
        **dict(o.split("=", 1) for o in options.option),
    }
    shown = []
    with KafkaBroker() as broker, loaded_topics.registry() as registry_url:
        for form in options.formats.split(","):
            topic = loaded_topics.load(
                broker.bootstrap_servers, form, options.events, options.events // 5
            )
            for mode in options.modes.split(","):
                expected = expected_content(topic, mode)
                runs = []
                for repeat in range(options.repeat):
                    heading = f"{form}-{mode}-{repeat}"
                    steps = max(1, options.events // options.step) if mode == "upsert" else 1
                    feed = Feed(
                        broker.bootstrap_servers, topic, f"{topic.name}-{mode}-{repeat}", steps
                    )
                    runs.append(
                        run(
                            Bench(broker, registry_url, more, options.cluster),
                            feed,
                            mode,
                            heading,
                            expected,
                        )
                    )
                    keep(options.json, "end to end", runs[-1])
                    print(
                        heading,
                        {k: v for k, v in runs[-1].items() if k != "samples"},
                        file=sys.stderr,
                        flush=True,
                    )
                middle = medians(runs)
                row = [
                    form,
                    mode,
                    f"{middle['whole']:,.0f}",
                    f"{middle['steady']:,.0f}",
                    f"{middle['cycles']:.0f}",
                ]
                peaks = [
                    f"{middle.get(f'{kind} MB', 0):.0f}"
                    for kind in ("worker", "coordinator task", "task", "JVM")
                ]
                shown.append(
                    [*row, f"{middle['elapsed_seconds']:.0f}", *peaks, f"{middle['machine']:.1f}"]
                )
    columns = ["format", "mode", "whole", "steady", "cycles", "seconds"]
    columns += ["worker MB", "coordinator MB", "task MB", "JVM MB", "machine"]
    print(
        f"{options.events} events, {TASKS} tasks, medians of {options.repeat}; events per CPU "
        f"second; peak PSS"
    )
    print_table(columns, shown)


if __name__ == "__main__":
    main()
