"""Both MERGE statements produce the same tables in local mode and on a cluster, from the Debezium
recordings.

The connector is the same in both places, except `iceberg.spark.master`. One test merges a table on
a standalone cluster; the other replays a recording in both places with both engines, and the other
recordings in local mode.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx
import pytest
from corpus_recording import AVRO_SCHEMAS
from corpus_replay import (
    APPENDED,
    COLUMNS,
    RECORDINGS,
    World,
    assert_holds_what_the_source_held,
    namespace_of,
    replay,
)
from lakehouse import Lakehouse
from postgres_text import plain_values
from schema_registry_stub import schema_registry
from spark_elsewhere import StandaloneCluster
from worker_process import WorkerProcess

from connect_py.embedded.broker import KafkaBroker
from connect_py.testing import FakeSharedServices
from connectors.iceberg.config.spark_config import SparkConfig
from connectors.iceberg.driver.lake_client import LakeClient
from connectors.iceberg_tools.audit.table_audit import Verdict, audit

SPREAD = {"spread": 3}  # partitions
MERGED = sorted(COLUMNS.keys() - {APPENDED})
ENGINE = "iceberg.ext.commit-engine"
ORDER = "__connect_py_order"
CATCH_UP_SECONDS = 240.0  # the first commit starts the executors of a cluster


@pytest.fixture(scope="module")
def world(
    kafka_broker: KafkaBroker,
    spark_environment: Mapping[str, str],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("engines")
    environment = {
        **spark_environment,
        "CONNECT_PY_FAULTS": f"@{folder / 'faults'}",
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    worker = WorkerProcess(
        folder / "worker", kafka_broker.bootstrap_servers, "engines", environment=environment
    )
    try:
        with schema_registry(AVRO_SCHEMAS) as registry:
            yield World(
                kafka_broker, worker.start(), Lakehouse(folder / "lake"), registry, "corpus."
            )
    finally:
        worker.close()


@contextmanager
def elsewhere(kind: str, folder: Path, environment: Mapping[str, str]) -> Iterator[dict[str, str]]:
    """A Spark to go to, and the key that leads there."""
    with ExitStack() as stack:
        if kind == "cluster":
            cluster = stack.enter_context(StandaloneCluster(folder / "cluster", environment))
            # Otherwise, the first application takes all cores, and the next connector waits
            # indefinitely.
            yield {"iceberg.spark.master": cluster.url, "iceberg.spark.cores.max": "1"}
            assert cluster.executors() > 0, "nothing ran on the cluster"
        else:
            yield {}


def at(world: World, place: str) -> World:
    """Return separate topics and tables."""
    return dataclasses.replace(
        world,
        prefix=f"corpus.{place}.",
        lakehouse=Lakehouse(world.lakehouse.directory.parent / place),
    )


def chosen(world: World, connector: str) -> dict[str, set[str]]:
    """The engines of a connector's commits, and why they were taken, from the metrics."""
    found: dict[str, set[str]] = {}
    for line in httpx.get(f"{world.worker.url}/metrics", timeout=30).text.splitlines():
        if "iceberg_engine_choices_total{" in line and f'connector="{connector}"' in line:
            labels = dict(
                part.split("=", 1)
                for part in line[line.index("{") + 1 : line.rindex("}")].split(",")
            )
            found.setdefault(labels["engine"].strip('"'), set()).add(labels["reason"].strip('"'))
    return found


def assert_proven(lakehouse: Lakehouse, tables: Collection[str]) -> None:
    """The audit of every table."""
    catalog = {
        key.removeprefix("iceberg.catalog."): value
        for key, value in lakehouse.sink_config().items()
    }
    del catalog["iceberg.catalog"]
    with (
        FakeSharedServices() as services,
        LakeClient(services, SparkConfig("lake", catalog)) as lake,
    ):
        for table in tables:
            report = audit(lake.history(table, "main"))
            assert report.verdict is Verdict.PROVEN, report.to_json()


def contents(lakehouse: Lakehouse, table: str) -> list[str]:
    """Return the columns with their types, and the rows as strings, where NaN equals NaN, in any
    order.
    """
    found = lakehouse.table(table)
    assert found is not None
    fields = {field.name: field for field in found.schema().as_arrow() if field.name != ORDER}
    told = [f"{name} {fields[name].type} {fields[name].nullable}" for name in sorted(fields)]
    rows = lakehouse.rows(table)
    columns = [plain_values(rows.column(name)) for name in sorted(fields)]
    return told + sorted(map(repr, zip(*columns, strict=True)))


def assert_nothing_is_left(lakehouse: Lakehouse, table: str) -> None:
    """Assert that no scratch branch remains."""
    found = lakehouse.table(table)
    assert found is not None
    assert set(found.refs()) == {"main"}


@pytest.mark.long
@pytest.mark.timeout(600)  # a cluster, a connector with its JVM, and two commits by SQL
def test_table_merged_by_external_spark_equals_the_source_table(
    world: World, tmp_path: Path, spark_environment: Mapping[str, str]
) -> None:
    """The table has values that are not sent."""
    table = "toasted"
    there = at(world, "short-cluster")
    with (
        elsewhere("cluster", tmp_path, spark_environment) as key,
        replay(
            there,
            "json-schema",
            [table],
            SPREAD,
            {**key, ENGINE: "merge"},
            parts=2,
            seconds=CATCH_UP_SECONDS,
        ) as (connector,),
    ):
        assert_holds_what_the_source_held(there, "json-schema", "spread", table)
        world.worker.wait_until(
            lambda: "full merge" in chosen(world, connector), 30, "the engine to be counted"
        )
    name = f"{namespace_of('json-schema')}.spread_{table}"
    assert_nothing_is_left(there.lakehouse, name)
    assert_proven(there.lakehouse, [name])


PLACES: Mapping[
    str, tuple[str, str, dict[str, str]]
] = {  # Spark, the engine that must be at work, how it is chosen
    "local": ("local", "merge", {}),
    "local-full": ("local", "full merge", {ENGINE: "merge"}),
    "cluster": ("cluster", "merge", {}),
    "cluster-full": ("cluster", "full merge", {ENGINE: "merge"}),
}
RECORDINGS_AT_PLACES = [
    *itertools.product(RECORDINGS[:1], PLACES),
    *itertools.product(RECORDINGS[1:], ("local", "local-full")),
]


@pytest.fixture(scope="module")
def seen() -> dict[str, list[list[str]]]:
    """Contents of the tables by recording, as the first place left them: all places of a recording
    run together."""
    return {}


@pytest.mark.long
# two connectors with all tables of a recording, and three rounds of commits
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(("recording", "place"), RECORDINGS_AT_PLACES)
def test_all_tables_of_a_recording_are_the_same_everywhere(
    world: World,
    tmp_path: Path,
    spark_environment: Mapping[str, str],
    seen: dict[str, list[list[str]]],
    recording: str,
    place: str,
) -> None:
    """But for the table without a key, to which rows are appended everywhere."""
    kind, engine, choice = PLACES[place]
    tables = [f"{namespace_of(recording)}.spread_{table}" for table in MERGED]
    there = at(world, f"{recording}-{place}")
    with ExitStack() as stack:
        more = {
            **stack.enter_context(elsewhere(kind, tmp_path / place, spark_environment)),
            **choice,
        }
        connectors = stack.enter_context(
            replay(there, recording, MERGED, SPREAD, more, seconds=CATCH_UP_SECONDS)
        )
        for table in MERGED:
            assert_holds_what_the_source_held(there, recording, "spread", table)
        for connector in connectors:
            # the first rows may be appended
            assert chosen(world, connector).keys() - {"append", "overwrite"} == {engine}
    assert_proven(there.lakehouse, tables)
    found = [contents(there.lakehouse, table) for table in tables]
    for table, rows, expected in zip(MERGED, found, seen.setdefault(recording, found), strict=True):
        assert rows == expected, f"{table} is not as in the first place"
