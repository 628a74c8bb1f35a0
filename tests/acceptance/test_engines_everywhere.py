"""Both MERGE statements, on whatever Spark there is, leave the same tables: the Debezium recordings prove it.

Places: this machine's own Spark, a stand-alone cluster by `iceberg.spark.master`, and Spark Connect by
`iceberg.spark.remote`. The connector is the same everywhere but for that key. The short form takes a table to
each of the two; the long one takes a recording everywhere, and the others to both engines of this machine.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from corpus_recording import AVRO_SCHEMAS, recorded_tables
from corpus_replay import (
    APPENDED,
    COLUMNS,
    RECORDINGS,
    World,
    assert_holds_what_the_source_held,
    await_caught_up,
    create_topics,
    namespace_of,
    part_of,
    produce,
    replay,
    sink_config,
)
from lakehouse import Lakehouse
from postgres_text import plain_values
from schema_registry_stub import schema_registry
from spark_elsewhere import ConnectServer, StandaloneCluster
from worker_process import WorkerProcess

from connect_py.embedded.broker import KafkaBroker
from connect_py.testing import FakeSharedServices
from connectors.iceberg.audit.table_audit import Verdict, audit
from connectors.iceberg.config.spark_config import SparkConfig
from connectors.iceberg.driver.lake_client import LakeClient

SPREAD = {"spread": 3}  # partitions
MERGED = sorted(COLUMNS.keys() - {APPENDED})
ENGINE = "iceberg.ext.commit-engine"
ORDER = "__connect_py_order"
CATCH_UP_SECONDS = 240.0  # the first executors of a cluster, or classes of a server, come with the first commit
RECOVER_SECONDS = 240.0


@pytest.fixture(scope="module")
def world(
    kafka_broker: KafkaBroker, spark_environment: Mapping[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("engines")
    environment = {**spark_environment, "CONNECT_PY_FAULTS": f"@{folder / 'faults'}", "SPARK_LOCAL_IP": "127.0.0.1"}
    worker = WorkerProcess(folder / "worker", kafka_broker.bootstrap_servers, "engines", environment=environment)
    try:
        with schema_registry(AVRO_SCHEMAS) as registry:
            yield World(kafka_broker, worker.start(), Lakehouse(folder / "lake"), registry, "corpus.")
    finally:
        worker.close()


@contextmanager
def elsewhere(kind: str, folder: Path, environment: Mapping[str, str]) -> Iterator[dict[str, str]]:
    """A Spark to go to, and the key that leads there."""
    with ExitStack() as stack:
        if kind == "cluster":
            cluster = stack.enter_context(StandaloneCluster(folder / "cluster", environment))
            # An application takes all cores otherwise, and the next connector's would wait for ever.
            yield {"iceberg.spark.master": cluster.url, "iceberg.spark.cores.max": "1"}
            assert cluster.executors() > 0, "nothing ran on the cluster"
        elif kind == "connect":
            server = stack.enter_context(ConnectServer(folder / "connect", environment))
            yield {"iceberg.spark.remote": server.url}
        else:
            yield {}


def at(world: World, place: str) -> World:
    """Topics and tables of its own."""
    return dataclasses.replace(
        world, prefix=f"corpus.{place}.", lakehouse=Lakehouse(world.lakehouse.directory.parent / place)
    )


def chosen(world: World, connector: str) -> dict[str, set[str]]:
    """The engines of a connector's commits, and why they were taken, from the metrics."""
    found: dict[str, set[str]] = {}
    for line in httpx.get(f"{world.worker.url}/metrics", timeout=30).text.splitlines():
        if "iceberg_engine_choices_total{" in line and f'connector="{connector}"' in line:
            labels = dict(part.split("=", 1) for part in line[line.index("{") + 1 : line.rindex("}")].split(","))
            found.setdefault(labels["engine"].strip('"'), set()).add(labels["reason"].strip('"'))
    return found


def assert_proven(lakehouse: Lakehouse, tables: Collection[str]) -> None:
    """The audit of every table."""
    catalog = {key.removeprefix("iceberg.catalog."): value for key, value in lakehouse.sink_config().items()}
    del catalog["iceberg.catalog"]
    with (
        FakeSharedServices() as services,
        LakeClient(services, SparkConfig("lake", catalog)) as lake,
    ):
        for table in tables:
            report = audit(lake.history(table, "main"))
            assert report.verdict is Verdict.PROVEN, report.to_json()


def contents(lakehouse: Lakehouse, table: str) -> list[str]:
    """Columns with their types, and the rows as texts, where NaN equals NaN; without the order of rows."""
    found = lakehouse.table(table)
    assert found is not None
    fields = {field.name: field for field in found.schema().as_arrow() if field.name != ORDER}
    told = [f"{name} {fields[name].type} {fields[name].nullable}" for name in sorted(fields)]
    rows = lakehouse.rows(table)
    columns = [plain_values(rows.column(name)) for name in sorted(fields)]
    return told + sorted(map(repr, zip(*columns, strict=True)))


def assert_nothing_is_left(lakehouse: Lakehouse, table: str) -> None:
    """No branch, and no snapshot of staged files."""
    found = lakehouse.table(table)
    assert found is not None
    assert set(found.refs()) == {"main"}
    assert not [s for s in found.snapshots() if s.summary and "connect-py.staged" in s.summary.additional_properties]


@pytest.mark.long
@pytest.mark.timeout(600)  # a cluster or server, a connector with its JVM, and two commits by SQL
@pytest.mark.parametrize(("kind", "engine"), [("cluster", {ENGINE: "merge"}), ("connect", {})])
def test_table_merged_by_external_spark_equals_the_source_table(
    world: World, tmp_path: Path, spark_environment: Mapping[str, str], kind: str, engine: dict[str, str]
) -> None:
    """The table has values that are not sent."""
    table = "toasted"
    there = at(world, f"short-{kind}")
    with (
        elsewhere(kind, tmp_path, spark_environment) as key,
        replay(there, "json-schema", [table], SPREAD, {**key, **engine}, parts=2, seconds=CATCH_UP_SECONDS) as (
            connector,
        ),
    ):
        assert_holds_what_the_source_held(there, "json-schema", "spread", table)
        world.worker.wait_until(lambda: "full merge" in chosen(world, connector), 30, "the engine to be counted")
    name = f"{namespace_of('json-schema')}.spread_{table}"
    assert_nothing_is_left(there.lakehouse, name)
    assert_proven(there.lakehouse, [name])


PLACES: Mapping[str, tuple[str, str, dict[str, str]]] = {  # Spark, the engine that must be at work, how it is chosen
    "local": ("local", "merge", {}),
    "local-full": ("local", "full merge", {ENGINE: "merge"}),
    "cluster": ("cluster", "merge", {}),
    "cluster-full": ("cluster", "full merge", {ENGINE: "merge"}),
    "connect": ("connect", "full merge", {}),
}
RECORDINGS_AT_PLACES = [
    *itertools.product(RECORDINGS[:1], PLACES),
    *itertools.product(RECORDINGS[1:], ("local", "local-full")),
]


@pytest.fixture(scope="module")
def seen() -> dict[str, list[list[str]]]:
    """Contents of the tables by recording, as the first place left them: all places of a recording run together."""
    return {}


@pytest.mark.long
@pytest.mark.timeout(1800)  # two connectors with all tables of a recording, and three rounds of commits
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
        more = {**stack.enter_context(elsewhere(kind, tmp_path / place, spark_environment)), **choice}
        connectors = stack.enter_context(replay(there, recording, MERGED, SPREAD, more, seconds=CATCH_UP_SECONDS))
        for table in MERGED:
            assert_holds_what_the_source_held(there, recording, "spread", table)
        for connector in connectors:
            assert chosen(world, connector).keys() - {"append", "overwrite"} == {
                engine
            }  # the first rows may be appended
    assert_proven(there.lakehouse, tables)
    found = [contents(there.lakehouse, table) for table in tables]
    for table, rows, expected in zip(MERGED, found, seen.setdefault(recording, found), strict=True):
        assert rows == expected, f"{table} is not as in the first place"


# --- what dies in between


def begun(there: World, name: str, config: Mapping[str, str]) -> Sequence[Any]:
    """A connector that has committed the first part of `toasted`."""
    topic = f"{there.prefix}json-schema.spread.toasted"
    create_topics(there, {topic: SPREAD["spread"]})
    there.worker.put(name, {**sink_config(there, "json-schema", "upsert"), **config, "topics": topic})
    records = recorded_tables("json-schema")["toasted"]
    produce(there, {topic: part_of(records, 0, 2)}, SPREAD["spread"])
    await_caught_up(there, name, [topic], CATCH_UP_SECONDS)
    return records


def finished(there: World, name: str) -> None:
    """Everything is in, exactly once, and what was left over is gone."""
    topic = f"{there.prefix}json-schema.spread.toasted"
    there.worker.wait_until(there.worker.healthy, RECOVER_SECONDS, "the worker")
    there.worker.wait_until(
        lambda: there.worker.states(name) == ["RUNNING"] * 3, RECOVER_SECONDS, "connector and tasks to run"
    )
    await_caught_up(there, name, [topic], CATCH_UP_SECONDS)
    assert_holds_what_the_source_held(there, "json-schema", "spread", "toasted")
    there.worker.delete(name)
    assert_proven(there.lakehouse, [f"{namespace_of('json-schema')}.spread_toasted"])


@pytest.mark.long
@pytest.mark.timeout(1200)  # a server and three commits by SQL
def test_spark_connect_server_with_cached_catalog_sees_every_new_branch(
    world: World, tmp_path: Path, spark_environment: Mapping[str, str]
) -> None:
    there = at(world, "known")
    settings = {k.removeprefix("iceberg.catalog."): v for k, v in there.lakehouse.sink_config().items()}
    del settings["iceberg.catalog"]
    catalog = "spark.sql.catalog.lake"
    known = {catalog: "org.apache.iceberg.spark.SparkCatalog", **{f"{catalog}.{k}": v for k, v in settings.items()}}
    with ConnectServer(tmp_path, spark_environment, **known) as server:
        more = {"iceberg.spark.remote": server.url}
        with replay(there, "json-schema", ["toasted"], SPREAD, more, seconds=CATCH_UP_SECONDS) as (connector,):
            assert_holds_what_the_source_held(there, "json-schema", "spread", "toasted")
            assert "full merge" in chosen(world, connector)
    assert "knows catalog lake: its own settings count" in world.worker.log_path.read_text(errors="replace")


@pytest.mark.long
@pytest.mark.timeout(1200)  # a server, two lives of a worker
@pytest.mark.parametrize("point", ["after_scratch_branch", "after_merge", "after_swap"])
def test_worker_death_around_spark_connect_merge_loses_or_doubles_nothing(
    world: World, tmp_path: Path, spark_environment: Mapping[str, str], point: str
) -> None:
    there = at(world, f"kill-{point}")
    name = f"kill-{point}"
    faults = Path(world.worker.environment["CONNECT_PY_FAULTS"].removeprefix("@"))
    with ConnectServer(tmp_path, spark_environment) as server:
        records = begun(there, name, {"iceberg.spark.remote": server.url})
        faults.write_text(f"{point}=killgroup")
        produce(there, {f"{there.prefix}json-schema.spread.toasted": part_of(records, 1, 2)}, SPREAD["spread"])
        world.worker.wait_for_death(RECOVER_SECONDS)
        faults.unlink()
        world.worker.start()
        finished(there, name)
    assert_nothing_is_left(there.lakehouse, f"{namespace_of('json-schema')}.spread_toasted")


@pytest.mark.long
@pytest.mark.timeout(1200)  # two lives of a server
def test_spark_connect_server_death_during_merge_loses_or_doubles_nothing(
    world: World, tmp_path: Path, spark_environment: Mapping[str, str]
) -> None:
    there = at(world, "server-dies")
    slow = {  # a MERGE of many small tasks
        "iceberg.spark.sql.shuffle.partitions": "400",
        "iceberg.spark.sql.autoBroadcastJoinThreshold": "-1",
        "iceberg.spark.sql.adaptive.enabled": "false",
    }
    with ConnectServer(tmp_path, spark_environment) as server:
        records = begun(there, "server-dies", {"iceberg.spark.remote": server.url, **slow})
        before = server.tasks()
        produce(there, {f"{there.prefix}json-schema.spread.toasted": part_of(records, 1, 2)}, SPREAD["spread"])
        world.worker.wait_until(lambda: server.tasks() > before + 20, RECOVER_SECONDS, "a MERGE to be under way")
        server.kill()
        world.worker.wait_until(
            lambda: "Spark Connect at 127.0.0.1" in world.worker.log_path.read_text(errors="replace"),
            RECOVER_SECONDS, "the coordinator to notice",
        )  # fmt: skip
        server.start()
        finished(there, "server-dies")
