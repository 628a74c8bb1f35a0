"""One task's pipeline: from the broker to staged Parquet, in one process on one core, without
coordinator and JVM.

    python tests/benchmarks/bench_pipeline.py [-n 300000] [--formats json,avro] [--modes append]
        [--paths columns]

Starts a broker, loads it with Debezium change events (tombstones on), and prints events per CPU
second, including the CPU time of the client library's threads, and microseconds per event by stage.
Each run is a separate process and prints a JSON line; the table shows medians. In the other paths,
the first transformation has no batch form, like a user's transformation might: in `rows` it reads
nothing, in `reads` it reads two members of each event, in `changes` it creates a new event for each
event. `--alone` omits the two transformations after the unwrapping one.
"""

from __future__ import annotations

import argparse
import gc
import json
import multiprocessing
import os
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
import loaded_topics
import pyarrow as pa
from loaded_topics import FORMATS, MODES, LoadedTopic
from results import DEFAULT_FILE, keep, machine_microseconds, medians, print_table

from connect_py.api.batch import Batch
from connect_py.api.record import OffsetAndMetadata, SinkRecord, TopicPartition
from connect_py.api.schema import Struct
from connect_py.api.transformation import Transformation
from connect_py.clock import SystemClock
from connect_py.embedded.broker import KafkaBroker
from connect_py.error_handling.error_config import ErrorConfig
from connect_py.error_handling.error_handler import ErrorHandler
from connect_py.kafka.client_config import ClientConfigs
from connect_py.plugins.plugin_registry import PluginRegistry
from connect_py.process.child_runtime import collect_rarely, keep_freed_memory
from connect_py.task.record_pipeline import RecordPipeline
from connect_py.task.sink.sink_consumer import SinkConsumer
from connect_py.task.sink.sink_loop import POLL_RECORDS
from connect_py.task.task_plugins import TaskPlugins
from connect_py.task.transformation_chain import ChainLink, Delivery, TransformationChain
from connectors.iceberg.config.sink_config import IcebergSinkConfig
from connectors.iceberg.protocol.positions import Epoch
from connectors.iceberg.routing.router import Router
from connectors.iceberg.staging.staging_area import StagingArea
from connectors.iceberg.staging.table_creation import TableCreation
from connectors.iceberg.table.table import TableDescription, TableRequest, WriteMode

PATHS = ("columns", "rows", "reads", "changes")
STAGES = ("consume", "convert", "transform", "rest", "stage", "parquet")
CYCLE_EVENTS = 100_000
DEADLINE_SECONDS = 300.0


@dataclass(frozen=True, slots=True)
class Run:
    """Measurement of one process."""

    topic: LoadedTopic
    mode: str
    bootstrap_servers: str
    registry_url: str
    group: str
    profile: str = ""
    path: str = "columns"  # first transformation
    alone: bool = False  # nothing behind the transformation that unwraps


class RowByRow(Transformation[SinkRecord]):
    """Does nothing, and knows no columns: what somebody's own transformation does to a chain."""

    def configure(self, configs: Mapping[str, str]) -> None:
        pass

    def apply(self, record: SinkRecord) -> SinkRecord | None:
        return record


class ReadsRows(RowByRow):
    """Filters events by content, without dropping any."""

    def apply(self, record: SinkRecord) -> SinkRecord | None:
        event = record.value
        return (
            None
            if event is not None and event["source"]["db"] == "moon" and event["op"] == "c"
            else record
        )


class ChangesRows(RowByRow):
    """Hides the e-mail address in the row after the change, if there is one."""

    def apply(self, record: SinkRecord) -> SinkRecord | None:
        event = record.value
        if event is None or event["after"] is None:
            return record
        if isinstance(event, dict):
            return record.replace(value={**event, "after": {**event["after"], "email": "hidden"}})
        row = Struct(event["after"].schema, event["after"].values).put("email", "hidden")
        return record.replace(value=Struct(event.schema, event.values).put("after", row))


FIRST: Mapping[str, type[RowByRow]] = {"rows": RowByRow, "reads": ReadsRows, "changes": ChangesRows}


class Stopwatch:
    """CPU seconds of this thread by stage; a stage inside another is taken out of it."""

    def __init__(self) -> None:
        self.seconds = dict.fromkeys(STAGES, 0.0)
        self._inner = 0.0

    @contextmanager
    def measure(self, stage: str) -> Iterator[None]:
        outer, self._inner = self._inner, 0.0
        start = time.thread_time()
        try:
            yield
        finally:
            taken = time.thread_time() - start
            self.seconds[stage] += taken - self._inner
            self._inner = outer + taken

    def around(self, stage: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def measured(*arguments: Any, **named: Any) -> Any:
            with self.measure(stage):
                return function(*arguments, **named)

        return measured


class Assignment:
    """A rebalance listener that does nothing."""

    def on_assigned(self, positions: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        pass

    def on_revoked(self, partitions: Sequence[TopicPartition]) -> None:
        pass

    def on_lost(self, partitions: Sequence[TopicPartition]) -> None:
        pass


class Staging:
    """The sink's part of the way: route, convert to the table's types, hold, write once per
    cycle."""

    def __init__(self, config: dict[str, str], mode: str, folder: Path, watch: Stopwatch) -> None:
        self._config = IcebergSinkConfig.parse(config)
        self._router = Router(self._config)
        self._stage = StagingArea(self._config, "0")
        self._creation = TableCreation(self._config)
        self._mode = WriteMode.MERGE if mode == "upsert" else WriteMode.APPEND
        self._folder = folder
        self._watch = watch
        self._answer = ""
        self._epoch = Epoch(1, "bench")
        self._cycle = 0
        self.rows = 0

    def put(self, delivery: Delivery) -> None:
        with self._watch.measure("stage"):
            for batch in [delivery] if isinstance(delivery, Batch) else Batch.of(delivery):
                for routed in self._router.route(batch).routed:
                    if not self._answer:
                        self._answer = self._describe(routed.table, routed.batch)
                    self._stage.add(
                        self._stage.convert(routed.table, self._answer, self._epoch, routed.batch)
                    )

    def close_cycle(self) -> None:
        self._cycle += 1
        with self._watch.measure("parquet"):
            staged = self._stage.close_cycle(self._cycle)
        self.rows += sum(file.rows for files in staged.values() for file in files)

    def _describe(self, table: str, batch: Batch) -> str:
        schema = TableRequest.from_text(self._creation.request(table, batch)).schema
        keys = ("id",) if self._mode is WriteMode.MERGE else ()
        description = TableDescription(
            table,
            "u",
            3,
            str(self._folder),
            str(self._folder / "data"),
            0,
            json.dumps(schema),
            '{"spec-id":0,"fields":[]}',
            self._mode,
            keys,
        )
        return json.dumps(description.to_json())


def measure(run: Run) -> dict[str, object]:
    """Read the whole topic once."""
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)
    machine = machine_microseconds()
    config = loaded_topics.sink_config(run.topic, run.mode, run.registry_url)
    if not run.alone:
        config = loaded_topics.with_two_more(config)
    config |= {"name": run.group, "iceberg.catalog.type": "jdbc"}
    worker = {"bootstrap.servers": run.bootstrap_servers}
    clock = SystemClock()
    errors = ErrorHandler(ErrorConfig.parse(config), [], clock, lambda seconds: None)
    plugins = TaskPlugins(PluginRegistry.discover(), worker, config)
    watch = Stopwatch()
    converters = plugins.converters()
    for converter in (converters.key, converters.value):
        converter.to_batch = watch.around("convert", converter.to_batch)  # type: ignore[method-assign] # timed
    chain = plugins.chain(errors, sink_takes_columns=True)
    first = FIRST.get(run.path)
    if first is not None:
        links = [ChainLink(first(), first.__name__), *chain.links]
        chain = TransformationChain(links, errors, sink_takes_columns=True)
    chain.process = watch.around("transform", chain.process)  # type: ignore[method-assign] # timed
    pipeline = RecordPipeline(converters, chain, errors)
    consumer = SinkConsumer(
        ClientConfigs(worker, config, run.group, 0).consumer(), Assignment(), lambda *_: None
    )
    profile = None
    if run.profile:
        import cProfile

        profile = cProfile.Profile(time.thread_time)
    with tempfile.TemporaryDirectory() as folder:
        staging = Staging(config, run.mode, Path(folder), watch)
        consumer.subscribe([run.topic.name])
        collect_rarely()  # as a task process does
        keep_freed_memory()
        collections = sum(s["collections"] for s in gc.get_stats())
        if profile:
            profile.enable()
        faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        cpu, elapsed = time.process_time(), time.monotonic()
        seen, held, puts = 0, 0, 0
        while seen < run.topic.records and time.monotonic() - elapsed < DEADLINE_SECONDS:
            with watch.measure("consume"):
                runs = consumer.poll(POLL_RECORDS, 0.2)
            if not runs:
                continue
            count = sum(map(len, runs))
            seen += count
            held += count
            puts += 1
            with watch.measure("rest"):
                deliveries = pipeline.process(runs)
            for delivery in deliveries:
                assert isinstance(delivery, Batch), "rows on the fast path"
                staging.put(delivery)
            if held >= CYCLE_EVENTS or seen >= run.topic.records:
                held = 0
                staging.close_cycle()
        cpu, elapsed = time.process_time() - cpu, time.monotonic() - elapsed
        faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - faults
        if profile:
            profile.disable()
            profile.dump_stats(run.profile)
    consumer.close()
    pipeline.close()
    if seen != run.topic.records:
        raise SystemExit(f"read {seen} of {run.topic.records} records")
    stages = {
        stage: round(1e6 * seconds / run.topic.events, 3)
        for stage, seconds in watch.seconds.items()
    }
    client = 1e6 * cpu / run.topic.events - sum(stages.values())
    return {
        "format": run.topic.form,
        "mode": run.mode,
        "path": run.path,
        "transformations": len(chain.links) - (first is not None),
        "events": run.topic.events,
        "records": seen,
        "rows": staging.rows,
        "events_per_cpu_second": round(run.topic.events / cpu),
        "cpu_seconds": round(cpu, 3),
        "elapsed_seconds": round(elapsed, 3),
        **stages,
        "client": round(client, 3),
        "records_per_poll": round(seen / puts),
        "page_faults": faults,
        "machine": round(machine, 2),
        "peak_pss_mb": _pss_mb(),
        "collections": sum(s["collections"] for s in gc.get_stats()) - collections,
    }


def _pss_mb() -> int:
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith("Pss:"))) // 1000


def _child(run: Run, pipe: Any) -> None:
    pipe.send(measure(run))


def in_own_process(run: Run) -> dict[str, object]:
    """Measure in a fresh process."""
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe(duplex=False)
    process = context.Process(target=_child, args=(run, there), name=f"bench-{run.group}")
    process.start()
    there.close()
    try:
        measured: dict[str, object] = here.recv()
    finally:
        process.join(30)
        process.kill()
    return measured


def main() -> None:
    """Measure every wanted format and mode."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("-n", "--events", type=int, default=300_000)
    parser.add_argument("--formats", default=",".join(FORMATS))
    parser.add_argument("--modes", default=",".join(MODES))
    parser.add_argument(
        "--paths", default=",".join(PATHS), help="some of these; rows only appended"
    )
    parser.add_argument(
        "--alone", action="store_true", help="unwrap only, without the two transformations behind"
    )
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument(
        "--json", type=Path, default=DEFAULT_FILE, help="file that JSON lines are appended to"
    )
    parser.add_argument(
        "--profile", default="", help="write a cProfile file per run, with this beginning"
    )
    options = parser.parse_args()
    shown = []
    with KafkaBroker() as broker, loaded_topics.registry() as registry_url:
        for form in options.formats.split(","):
            topic = loaded_topics.load(
                broker.bootstrap_servers, form, options.events, options.events // 5
            )
            for path, mode in product(options.paths.split(","), options.modes.split(",")):
                if path != "columns" and mode != "append":
                    continue
                runs = []
                for repeat in range(options.repeat):
                    group = f"bench-{form}-{mode}-{path}-{repeat}"
                    profile = (
                        f"{options.profile}{form}-{mode}-{path}.prof" if options.profile else ""
                    )
                    run = Run(
                        topic,
                        mode,
                        broker.bootstrap_servers,
                        registry_url,
                        group,
                        profile,
                        path,
                        options.alone,
                    )
                    runs.append(in_own_process(run))
                    keep(options.json, "pipeline", runs[-1])
                middle = medians(runs)
                row = [form, mode, path, f"{middle['events_per_cpu_second']:,.0f}"]
                row += [f"{middle[stage]:.2f}" for stage in (*STAGES, "client")]
                shown.append([*row, f"{middle['peak_pss_mb']:.0f}", f"{middle['machine']:.1f}"])
    columns = ["format", "mode", "path", "events/CPU s", *STAGES, "client", "PSS MB", "machine"]
    chain = "unwrapped" if options.alone else "unwrapped, a field inserted, another renamed"
    print(
        f"{options.events} events, {chain}; medians of {options.repeat}, stages in microseconds of "
        f"CPU per event"
    )
    print_table(columns, shown)


if __name__ == "__main__":
    main()
