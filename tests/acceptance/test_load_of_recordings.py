"""The Debezium recordings loaded, streamed, and rebuilt: tables and dead-letter records are equal
to the source.
"""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition
from corpus_recording import AVRO_SCHEMAS, Recorded, recorded_tables
from corpus_replay import (
    APPENDED,
    COLUMNS,
    RECORDINGS,
    World,
    assert_holds_what_the_source_held,
    await_caught_up,
    create_tables,
    create_topics,
    kind_of,
    namespace_of,
    printed_rows,
    produce,
    sink_config,
)
from lakehouse import Lakehouse
from schema_registry_stub import schema_registry
from worker_process import WorkerProcess

from connect_py.embedded.broker import KafkaBroker

pytestmark = [pytest.mark.long, pytest.mark.soak]
PARTITIONS = 3
COMMAND = Path(sys.executable).with_name("connect-py")
KINDS = ("append", "events", "upsert")
LOADED, STREAMED = "spread", "whole"  # the layouts of whose names the tables are
SAME_IN_BOTH = (
    "topic",
    "partition",
    "offset",
    "stage",
    "class.name",
    "exception.class.name",
    "exception.message",
)


@pytest.fixture
def world(
    kafka_broker: KafkaBroker,
    spark_environment: Mapping[str, str],
    tmp_path: Path,
    topic_prefix: str,
) -> Iterator[World]:
    """Its worker is not started."""
    worker = WorkerProcess(
        tmp_path / "worker",
        kafka_broker.bootstrap_servers,
        topic_prefix,
        environment=spark_environment,
    )
    with schema_registry(AVRO_SCHEMAS) as registry:
        yield World(kafka_broker, worker, Lakehouse(tmp_path / "lake"), registry, "corpus.load.")
    worker.close()


# three loads with a step for each change of a table, and a rebuild of each table
@pytest.mark.timeout(2400)
@pytest.mark.parametrize("recording", RECORDINGS)
def test_loaded_streamed_and_rebuilt_tables_of_recordings_are_equal(
    world: World, tmp_path: Path, recording: str
) -> None:
    records = {
        table: with_bad_records(found)
        for table, found in recorded_tables(recording).items()
        if table in COLUMNS
    }
    topics = {table: f"{world.prefix}{recording}.{LOADED}.{table}" for table in records}
    create_topics(world, dict.fromkeys(topics.values(), PARTITIONS))
    if recording == "json-plain":
        create_tables(world.lakehouse, namespace_of(recording))
    produce(world, {topics[table]: found for table, found in records.items()}, PARTITIONS)
    consumed = {
        kind: [topic for table, topic in topics.items() if kind_of(table) == kind] for kind in KINDS
    }
    connectors = {kind: connector(world, recording, kind, LOADED, consumed[kind]) for kind in KINDS}
    for kind in KINDS:
        (tmp_path / f"{kind}.json").write_text(
            json.dumps({"name": f"{recording}-{kind}", "config": connectors[kind]})
        )
        run(world, "load", str(tmp_path / f"{kind}.json"), "--step-rows", "300")
    stream(world, recording, consumed)

    before = {table: printed_rows(world.lakehouse, recording, LOADED, table) for table in records}
    for layout in (LOADED, STREAMED):
        assert_all_tables_hold_what_the_source_held(world, recording, layout)
    loaded, streamed = (
        dead_letters(world, f"{recording}.{layout}.dead") for layout in (LOADED, STREAMED)
    )
    assert loaded == streamed
    assert set(loaded.values()) == {1}
    assert len(loaded) >= 2 * len(records)
    for table in sorted(records):
        config = tmp_path / f"{kind_of(table)}.json"
        name = f"{namespace_of(recording)}.{LOADED}_{table}"
        command = (
            "rebuild",
            name,
            "--config",
            str(config),
            "--from-topics",
            "--publish",
            "--step-rows",
            "300",
            "--json",
        )
        found = json.loads(run(world, *command))
        assert found["published"], found
        assert set(found["difference"]["counts"].values()) == {0}, found["difference"]
    assert_all_tables_hold_what_the_source_held(world, recording, LOADED)
    assert same_rows(before[APPENDED], printed_rows(world.lakehouse, recording, LOADED, APPENDED))
    # a rebuild sends none a second time
    assert dead_letters(world, f"{recording}.{LOADED}.dead") == loaded


def with_bad_records(records: Sequence[Recorded]) -> list[Recorded]:
    """Two values more that no converter can read: before the first record, and after half of
    them."""
    bad = dataclasses.replace(records[0], value=b"no format")
    half = len(records) // 2
    return [bad, *records[:half], bad, *records[half:]]


def connector(
    world: World, recording: str, kind: str, layout: str, topics: Sequence[str]
) -> dict[str, str]:
    return {
        **sink_config(world, recording, kind),
        "topics": ",".join(topics),
        "iceberg.ext.topic-to-table": rf"corpus\..*\.(.*)\.(.*):{namespace_of(recording)}.{layout}_{{2}}",  # noqa: E501 - one literal
        "errors.tolerance": "all",
        "errors.deadletterqueue.topic.name": f"{recording}.{layout}.dead",
        "errors.deadletterqueue.topic.replication.factor": "1",
        "errors.deadletterqueue.context.headers.enable": "true",
    }


def run(world: World, *command: str) -> str:
    """Run the command and return its output."""
    line = [str(COMMAND), *command, "--bootstrap-server", world.broker.bootstrap_servers]
    done = subprocess.run(line, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return done.stdout


def stream(world: World, recording: str, consumed: Mapping[str, Sequence[str]]) -> None:
    """Consume the same topics with connectors of a worker, into separate tables."""
    world.worker.start()
    for kind, topics in consumed.items():
        world.worker.put(
            f"{recording}-{kind}-streamed", connector(world, recording, kind, STREAMED, topics)
        )
    for kind, topics in consumed.items():
        await_caught_up(world, f"{recording}-{kind}-streamed", topics, 300.0)
    world.worker.stop()


def assert_all_tables_hold_what_the_source_held(world: World, recording: str, layout: str) -> None:
    for table in sorted(COLUMNS.keys() - {APPENDED}):
        assert_holds_what_the_source_held(world, recording, layout, table)
    # As `test_corpus_replay` lists.
    assert len(world.lakehouse.rows(f"{namespace_of(recording)}.{layout}_{APPENDED}")) == 10


def same_rows(
    some: Sequence[Mapping[str, str | None]], others: Sequence[Mapping[str, str | None]]
) -> bool:
    counted, expected = (Counter(tuple(row.items()) for row in rows) for rows in (some, others))
    return counted == expected


def dead_letters(world: World, topic: str) -> Counter[tuple[str, ...]]:
    """Count the headers of the records in a dead-letter topic."""
    consumer = Consumer({"bootstrap.servers": world.broker.bootstrap_servers, "group.id": "reader"})
    try:
        place = TopicPartition(topic, 0, 0)
        _, end = consumer.get_watermark_offsets(place, 30.0)
        consumer.assign([place])
        found: Counter[tuple[str, ...]] = Counter()
        while found.total() < end:
            got = consumer.consume(end - found.total(), 30.0)
            assert got, f"{found.total()} of {end} dead letters"
            for message in got:
                headers = {
                    name: text.decode(errors="replace")
                    for name, text in message.headers() or []
                    if text
                }
                found[tuple(headers[f"__connect.errors.{name}"] for name in SAME_IN_BOTH)] += 1
    finally:
        consumer.close()
    return found
