"""`connect-py load` of the Debezium recordings: the tables hold what the source held, as behind tasks."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from corpus_recording import AVRO_SCHEMAS, recorded_tables
from corpus_replay import (
    APPENDED,
    COLUMNS,
    RECORDINGS,
    World,
    assert_holds_what_the_source_held,
    create_tables,
    create_topics,
    kind_of,
    namespace_of,
    produce,
    sink_config,
)
from lakehouse import Lakehouse
from schema_registry_stub import schema_registry
from worker_process import WorkerProcess

from connect_py.embedded.broker import KafkaBroker

pytestmark = pytest.mark.long
PARTITIONS = 3
COMMAND = Path(sys.executable).with_name("connect-py")


@pytest.fixture
def world(
    kafka_broker: KafkaBroker, spark_environment: Mapping[str, str], tmp_path: Path, topic_prefix: str
) -> Iterator[World]:
    """Its worker is not started."""
    worker = WorkerProcess(tmp_path / "worker", kafka_broker.bootstrap_servers, topic_prefix)
    with schema_registry(AVRO_SCHEMAS) as registry:
        yield World(kafka_broker, worker, Lakehouse(tmp_path / "lake"), registry, "corpus.load.")
    worker.close()


@pytest.mark.timeout(1200)  # three loads, with a step for each change of a table
@pytest.mark.parametrize("recording", RECORDINGS)
def test_loaded_tables_of_a_recording_hold_what_the_source_held(world: World, tmp_path: Path, recording: str) -> None:
    tables = {table: records for table, records in recorded_tables(recording).items() if table in COLUMNS}
    topics = {table: f"{world.prefix}{recording}.spread.{table}" for table in tables}
    create_topics(world, dict.fromkeys(topics.values(), PARTITIONS))
    if recording == "json-plain":
        create_tables(world.lakehouse, namespace_of(recording))
    produce(world, {topics[table]: records for table, records in tables.items()}, PARTITIONS)
    for kind in sorted({kind_of(table) for table in tables}):
        config = sink_config(world, recording, kind)
        config["topics"] = ",".join(topic for table, topic in topics.items() if kind_of(table) == kind)
        connector = tmp_path / f"{kind}.json"
        connector.write_text(json.dumps({"name": f"{world.prefix}{recording}-{kind}", "config": config}))
        command = [str(COMMAND), "load", str(connector), "--bootstrap-server", world.broker.bootstrap_servers]
        done = subprocess.run(
            [*command, "--step-rows", "300"], capture_output=True, text=True, timeout=600, check=False
        )
        assert done.returncode == 0, done.stderr[-4000:]
    for table in sorted(tables.keys() - {APPENDED}):
        assert_holds_what_the_source_held(world, recording, "spread", table)
    assert (
        len(world.lakehouse.rows(f"{namespace_of(recording)}.spread_{APPENDED}")) == 10
    )  # as `test_corpus_replay` lists
