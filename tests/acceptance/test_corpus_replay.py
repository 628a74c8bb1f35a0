"""The Debezium recordings through broker, worker and sink: the tables hold what Postgres held.

Each recording is replayed twice by one upsert connector: `whole`, as recorded (one partition per topic, everything at
once), and `spread` over three partitions by the hash of the key, in two or three parts with a commit after each.

What is compared, and how: `fixtures/corpus_replay.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pytest
from corpus_recording import AVRO_SCHEMAS
from corpus_replay import (
    APPENDED,
    COLUMNS,
    LAYOUTS,
    PARTS,
    RECORDINGS,
    World,
    assert_holds_what_the_source_held,
    namespace_of,
    printed_rows,
    replay,
)
from lakehouse import Lakehouse
from schema_registry_stub import schema_registry
from worker_process import WorkerProcess

from connect_py.embedded.broker import KafkaBroker


@pytest.fixture(scope="module")
def world(
    kafka_broker: KafkaBroker, spark_environment: Mapping[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("corpus")
    worker = WorkerProcess(folder / "worker", kafka_broker.bootstrap_servers, "corpus", environment=spark_environment)
    try:
        with schema_registry(AVRO_SCHEMAS) as registry:
            yield World(kafka_broker, worker.start(), Lakehouse(folder / "lake"), registry, "corpus.")
    finally:
        worker.close()


@pytest.fixture(
    scope="module", params=[RECORDINGS[0], *(pytest.param(each, marks=pytest.mark.long) for each in RECORDINGS[1:])]
)
def replayed(request: pytest.FixtureRequest, world: World) -> Iterator[str]:
    """A recording's name, once everything of it is in the tables."""
    with replay(world, request.param, parts=2 if request.param == RECORDINGS[0] else PARTS):
        yield request.param


@pytest.mark.timeout(600)  # the first test of a recording replays it: three connectors, three rounds of commits
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("table", sorted(COLUMNS.keys() - {APPENDED}))
def test_table_holds_what_the_source_held(world: World, replayed: str, layout: str, table: str) -> None:
    assert_holds_what_the_source_held(world, replayed, layout, table)


@pytest.mark.timeout(600)  # as above
@pytest.mark.parametrize("layout", LAYOUTS)
def test_table_without_key_gets_one_row_per_event(world: World, replayed: str, layout: str) -> None:
    """Deletes are marked; a truncate, and the null key with null value after a delete, make no row."""
    rows = printed_rows(world.lakehouse, replayed, layout, APPENDED)
    data = world.lakehouse.rows(f"{namespace_of(replayed)}.{layout}_{APPENDED}")
    if replayed == "json-plain":
        deleted = [cdc["op"] == "D" for cdc in data.column("_cdc").to_pylist()]
    else:
        deleted = [mark == "true" for mark in data.column("__deleted").to_pylist()]
    found = [(*row.values(), gone) for row, gone in zip(rows, deleted, strict=True)]
    assert sorted(found, key=repr) == sorted(
        [
            ("1", "one", "1.001", False),
            ("1", "one", "1.001", False),
            (None, None, None, False),
            ("2", "two", "2.500", False),
            ("1", "one!", "1.001", False),
            ("1", "one!", "1.001", False),
            (None, None, None, True),
            ("9", "nine", "9.000", False),
            ("9", "x", "9.000", False),
            ("9", "x", "9.000", True),
        ],
        key=repr,
    )


@pytest.mark.timeout(600)  # as above
@pytest.mark.parametrize("layout", LAYOUTS)
def test_ledgers_of_every_replayed_table_form_a_chain(world: World, replayed: str, layout: str) -> None:
    for table in COLUMNS:
        assert world.lakehouse.assert_ledgers_chain(f"{namespace_of(replayed)}.{layout}_{table}") >= 1
