"""The Debezium recordings through broker, worker, and sink: the tables equal Postgres.

Each recording is replayed twice by three connectors: `whole`, as recorded (one partition per topic,
everything at once), and `spread` over three partitions by the hash of the key, in two or three
parts with a commit after each.

For the comparison, see `fixtures/corpus_replay.py`.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

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

IN_SHORT = (RECORDINGS[0], "spread")


@pytest.fixture(scope="module")
def world(
    kafka_broker: KafkaBroker,
    spark_environment: Mapping[str, str],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("corpus")
    worker = WorkerProcess(
        folder / "worker", kafka_broker.bootstrap_servers, "corpus", environment=spark_environment
    )
    try:
        with schema_registry(AVRO_SCHEMAS) as registry:
            yield World(
                kafka_broker, worker.start(), Lakehouse(folder / "lake"), registry, "corpus."
            )
    finally:
        worker.close()


@dataclass(frozen=True)
class Replayed:
    """A recording in one layout, with everything of it in the tables."""

    world: World
    recording: str
    layout: str

    def table(self, name: str) -> str:
        """The table of this name in the catalog."""
        return f"{namespace_of(self.recording)}.{self.layout}_{name}"


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(each, marks=() if each == IN_SHORT else pytest.mark.long)
        for each in itertools.product(RECORDINGS, LAYOUTS)
    ],
    ids="-".join,
)
def replayed(request: pytest.FixtureRequest, world: World) -> Iterator[Replayed]:
    recording, layout = request.param
    lakehouse = Lakehouse(world.lakehouse.directory.parent / f"{recording}-{layout}")
    there = dataclasses.replace(world, prefix=f"corpus.{layout}.", lakehouse=lakehouse)
    parts = 2 if recording == RECORDINGS[0] else PARTS
    with replay(there, recording, layouts={layout: LAYOUTS[layout]}, parts=parts):
        yield Replayed(there, recording, layout)


# the first test of a recording replays it: three connectors, three rounds of commits
@pytest.mark.timeout(600)
@pytest.mark.parametrize("table", sorted(COLUMNS.keys() - {APPENDED}))
def test_table_holds_what_the_source_held(replayed: Replayed, table: str) -> None:
    assert_holds_what_the_source_held(replayed.world, replayed.recording, replayed.layout, table)


@pytest.mark.timeout(600)  # as above
def test_table_without_key_gets_one_row_per_event(replayed: Replayed) -> None:
    """Deletes are marked; a truncate, and the null key with null value after a delete, make no
    row."""
    lakehouse = replayed.world.lakehouse
    rows = printed_rows(lakehouse, replayed.recording, replayed.layout, APPENDED)
    data = lakehouse.rows(replayed.table(APPENDED))
    if replayed.recording == "json-plain":
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
def test_ledgers_of_every_replayed_table_form_a_chain(replayed: Replayed) -> None:
    for table in COLUMNS:
        assert replayed.world.lakehouse.assert_ledgers_chain(replayed.table(table)) >= 1
