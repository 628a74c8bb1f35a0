"""Comparison with alternatives on the same topic of one broker, one after another.

    python tests/benchmarks/bench_peers.py -n 1000000 [--formats json,json-schema,avro] [--modes
        append,upsert]

Append: the Iceberg project's sink on the Java worker, started with the scripts of their packages
(Kafka's own heap and collector options, two tasks, the same commit interval); both read the same
topic. Upsert (JSON): Spark Structured Streaming with a `MERGE` per batch; each gets a copy of the
topic, the next 200,000 events when its table covers the previous events. Each contender runs alone.
The CPU time includes all its processes, but not the broker, from the moment that it gets work
(*start* is the time before that; Spark gets its work at its start). Tables are compared with the
expected result of the load. *whole* and *steady* are defined in bench_end_to_end.py, *MB* is the
largest sum of proportional memory of all processes at one moment, *times* is the ratio of ours to
theirs.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

import loaded_topics
from bench_end_to_end import (
    TABLE,
    TASKS,
    Bench,
    Expected,
    Progress,
    discard,
    expected_content,
    follow,
    run,
    settle,
    verify,
)
from confluent_kafka.admin import AdminClient, NewTopic
from lakehouse import Lakehouse
from loaded_topics import FORMATS, MODES, Feed, FullTopic, LoadedTopic
from peer_java_sink import JavaSinkWorker, artifacts, java_sink_config, rows_in_table
from process_watch import ProcessWatch
from results import DEFAULT_FILE, keep, machine_microseconds, print_table, versions_line

from connect_py.embedded.broker import KafkaBroker
from connect_py.embedded.java_runtime import find_java

STOP_SECONDS = 30.0


def run_java_sink(
    bench: Bench, feed: Feed | FullTopic, expected: Expected, heading: str
) -> dict[str, object]:
    """Run the Java worker until the table has all rows."""
    folder = Path(tempfile.mkdtemp(prefix="connect-py-bench-"))
    lake = Lakehouse(folder / "lake")
    lake.catalog.create_namespace("db")  # its two tasks would both create it, and one fail
    control = f"control-{heading}"
    admin = AdminClient({"bootstrap.servers": bench.broker.bootstrap_servers})
    admin.create_topics([NewTopic(control, 1, 1)])[control].result(30)
    worker = JavaSinkWorker(folder, bench.broker.bootstrap_servers, heading)
    machine = machine_microseconds()
    try:
        worker.start()
        watch = ProcessWatch(worker.pid)
        settle(watch)
        progress = Progress(feed.topic, watch, partial(rows_in_table, lake, TABLE, feed.topic))
        progress.sample()
        with artifacts() as url:
            config = java_sink_config(feed.topic, lake, url, bench.broker.bootstrap_servers)
            config["iceberg.control.topic"] = control
            worker.put(heading, {**config, "tasks.max": str(TASKS), **bench.options})
            follow(
                progress,
                feed,
                lambda: "FAILED" in worker.states(heading),
                partial(worker.log_end, 80),
            )
        verify(lake, feed.topic, "append", expected)
        return measured("Java sink", feed.topic, "append", progress, watch, machine)
    finally:
        worker.close()
        discard(folder)


def run_spark_stream(bench: Bench, feed: Feed | FullTopic, expected: Expected) -> dict[str, object]:
    """Run the streaming query until its table covers the topic."""
    folder = Path(tempfile.mkdtemp(prefix="connect-py-bench-"))
    lake = Lakehouse(folder / "lake")
    log = folder / "stream.log"
    machine = machine_microseconds()
    arguments = [
        feed.topic.name,
        str(lake.directory),
        bench.options["iceberg.control.commit.interval-ms"],
    ]
    program = Path(__file__).with_name("peer_spark_stream.py")
    feed.copy_step()
    with log.open("wb") as out:
        stream = subprocess.Popen(
            [sys.executable, str(program), bench.broker.bootstrap_servers, *arguments],
            stdout=out,
            stderr=out,
            env={
                **os.environ,
                "JAVA_HOME": str(find_java().path.parents[1]),
                "PYTHONPATH": str(Path(__file__).parents[1] / "fixtures"),
            },
        )
    try:
        watch = ProcessWatch(stream.pid)
        progress = Progress(feed.topic, watch, partial(_written, lake.directory / "progress"))
        progress.samples.append((0.0, 0.0, 0))
        follow(progress, feed, lambda: stream.poll() is not None, lambda: log.read_text()[-6000:])
        verify(lake, feed.topic, "upsert", expected)
        return measured("Spark streaming", feed.topic, "upsert", progress, watch, machine)
    finally:
        stream.terminate()
        try:
            stream.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            stream.kill()
            stream.wait()
        discard(folder)


def _written(file: Path) -> int:
    return int(file.read_text()) if file.exists() else 0


def measured(
    contender: str,
    topic: LoadedTopic,
    mode: str,
    progress: Progress,
    watch: ProcessWatch,
    machine: float,
) -> dict[str, object]:
    """A contender's line."""
    whole, steady = progress.rates()
    return {
        "contender": contender,
        "format": topic.form,
        "mode": mode,
        "events": topic.events,
        "records": topic.records,
        "whole": round(whole),
        "steady": round(steady),
        "elapsed_seconds": round(progress.samples[-1][0], 1),
        "MB": round(watch.peak_total_mb),
        "peaks": watch.peaks(),
        "start_cpu_seconds": round(progress.samples[0][1], 2),
        "machine": round(machine, 2),
        "samples": [(round(t, 1), round(c, 2), n) for t, c, n in progress.samples],
    }


def main() -> None:
    """Measure every wanted format and mode, ours first."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("-n", "--events", type=int, default=200_000)
    parser.add_argument("--formats", default=",".join(FORMATS))
    parser.add_argument("--modes", default=",".join(MODES))
    parser.add_argument(
        "--interval-ms", default="5000", help="commit interval, and the stream's trigger"
    )
    parser.add_argument(
        "--step", type=int, default=200_000, help="events that upserts are fed with at a time"
    )
    parser.add_argument(
        "--json", type=Path, default=DEFAULT_FILE, help="file that JSON lines are appended to"
    )
    options = parser.parse_args()
    # ends worker and broker with this process
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    more = {"iceberg.control.commit.interval-ms": options.interval_ms}
    shown = []
    expected: dict[str, Expected] = {}  # by mode: formats hold the same events
    started = time.monotonic()
    with KafkaBroker() as broker, loaded_topics.registry() as registry_url:
        bench = Bench(broker, registry_url, more)
        servers = broker.bootstrap_servers
        for form in options.formats.split(","):
            topic = loaded_topics.load(servers, form, options.events, options.events // 5)
            for mode in options.modes.split(","):
                if mode == "upsert" and form != "json":
                    continue
                if mode not in expected:
                    expected[mode] = expected_content(topic, mode)
                append = mode == "append"
                steps = max(1, options.events // options.step)
                feeds = [
                    FullTopic(topic)
                    if append
                    else Feed(servers, topic, f"{topic.name}-{mode}-{who}", steps)
                    for who in "ab"
                ]
                ours = run(bench, feeds[0], mode, f"{form}-{mode}", expected[mode])
                keep(options.json, "peers", {**ours, "contender": "connect-py"})
                if append:
                    theirs = run_java_sink(bench, feeds[1], expected[mode], f"java-{form}")
                else:
                    theirs = run_spark_stream(bench, feeds[1], expected[mode])
                keep(options.json, "peers", theirs)
                shown += [
                    _row("connect-py", ours),
                    _row(str(theirs["contender"]), theirs),
                    _times(ours, theirs),
                ]
                print(
                    f"{time.monotonic() - started:.0f} s: {shown[-3:]}", file=sys.stderr, flush=True
                )
    print(
        f"{options.events} events, {TASKS} tasks, a commit every "
        f"{int(options.interval_ms) / 1000:g} s;"
        f" upserts by {options.step} events; events per CPU second"
    )
    print(versions_line())
    print_table(
        ["format", "mode", "contender", "whole", "steady", "seconds", "start", "MB", "machine"],
        shown,
    )


def _row(contender: str, line: dict[str, object]) -> list[str]:
    return [
        str(line["format"]),
        str(line["mode"]),
        contender,
        f"{line['whole']:,}",
        f"{line['steady']:,}",
        f"{line['elapsed_seconds']}",
        f"{line['start_cpu_seconds']}",
        f"{line['MB']}",
        f"{line['machine']}",
    ]


def _times(ours: dict[str, object], theirs: dict[str, object]) -> list[str]:
    quotients = [
        f"{float(str(ours[kind])) / float(str(theirs[kind])):.1f}x"
        if ours[kind] and theirs[kind]
        else ""
        for kind in ("whole", "steady")
    ]
    return ["", "", "times", *quotients, "", "", "", ""]


if __name__ == "__main__":
    main()
