"""The catalog through Spark's JVM, the lifecycle of the driver, and the state of a commit after a
power failure.
"""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import threading
import time
import uuid
import weakref
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, nullcontext
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import psutil
import pytest
from command_lines import command_line
from fixtures.iceberg_commit import (
    BY_REGION,
    ENGINES,
    KEY,
    ORDERS_SCHEMA,
    Lake,
    activate,
    lake,
    lake_config,
    order,
)

from connect_py.process.channel import Channel
from connect_py.testing import FakeSharedServices
from connectors.iceberg.catalog import own_classes
from connectors.iceberg.config.spark_config import SparkConfig
from connectors.iceberg.driver import driver_program, lake_session
from connectors.iceberg.driver.driver_protocol import OpenSession, Request
from connectors.iceberg.driver.lake_client import LakeClient
from connectors.iceberg.driver.lake_session import LakeSession
from connectors.iceberg.driver.warm_up import WarmUp
from connectors.iceberg.errors import (
    CatalogUnavailableError,
    SparkDiedError,
    TableMissingError,
    TableUnsuitableError,
)
from connectors.iceberg.protocol.commit_request import EngineName, EngineSettings
from connectors.iceberg.protocol.positions import Epoch
from connectors.iceberg.staging.staged_file_name import StagedFileName, table_digits
from connectors.iceberg.table.schema_change import ChangeKind, SchemaChange
from connectors.iceberg.table.table import StagedKind, WriteMode

__all__ = ["lake"]


def columns(lake: Lake, name: str) -> dict[str, object]:
    schema = json.loads(lake.catalog.load(name, KEY).description.schema)
    return {field["name"]: field["type"] for field in schema["fields"]}


def test_table_in_a_deep_namespace_is_created_once(lake: Lake) -> None:
    name = f"a.b{uuid.uuid4().hex[:6]}.c.orders"
    with pytest.raises(TableMissingError):
        lake.catalog.load(name, KEY)
    assert lake.catalog.create(
        name, ORDERS_SCHEMA, BY_REGION, {"format-version": "3", "owner": "shop"}
    )
    assert not lake.catalog.create(name, ORDERS_SCHEMA)
    loaded = lake.catalog.load(name, KEY, mode=WriteMode.MERGE, key_columns=("shop",))
    assert loaded.description.format_version == 3
    assert loaded.description.properties["owner"] == "shop"
    assert json.loads(loaded.description.spec)["fields"][0]["name"] == "region"
    assert (loaded.view.ancestors, loaded.view.property, loaded.view.complete) == ([], None, True)


def test_missing_table_is_told_from_an_unreachable_catalog(lake: Lake) -> None:
    with pytest.raises(TableMissingError, match=r"shop\.nowhere"):
        lake.catalog.load("shop.nowhere", KEY)


def test_schema_changes_are_one_update_and_can_be_repeated(lake: Lake) -> None:
    sink = lake.make(version=3)
    before = sink.description().schema_id
    point = '{"type":"struct","fields":[{"id":1,"name":"x","required":false,"type":"double"}]}'
    changes = [
        SchemaChange(ChangeKind.ADD, ("status",), '"string"', '"new"'),
        SchemaChange(ChangeKind.ADD, ("point",), point),
        SchemaChange(ChangeKind.WIDEN, ("shop",), '"long"'),
        SchemaChange(ChangeKind.OPTIONAL, ("number",)),
    ]
    assert lake.catalog.evolve(sink.name, changes)
    assert not lake.catalog.evolve(sink.name, changes)
    assert sink.description().schema_id == before + 1
    assert lake.catalog.evolve(
        sink.name, [SchemaChange(ChangeKind.ADD, ("point", "y"), '"double"')]
    )
    found = columns(lake, sink.name)
    assert (found["shop"], found["status"]) == ("long", "string")
    assert [field["name"] for field in found["point"]["fields"]] == ["x", "y"]  # type: ignore[index] - a struct


def test_change_that_no_table_can_take_is_refused(lake: Lake) -> None:
    sink = lake.make()
    with pytest.raises(TableUnsuitableError):
        lake.catalog.evolve(sink.name, [SchemaChange(ChangeKind.WIDEN, ("number",), '"long"')])


@pytest.mark.parametrize("engine", [EngineName.MERGE, EngineName.FULL_MERGE])
def test_rows_staged_before_an_evolution_land_after_it(lake: Lake, engine: EngineName) -> None:
    sink = lake.make()
    sink.commit(sink.stage([order(1, "a")]), engine)
    files = sink.stage([order(1, "a"), order(1, "b")])
    lake.catalog.evolve(sink.name, [SchemaChange(ChangeKind.ADD, ("status",), '"string"')])
    sink.commit(files, engine)
    sink.commit(sink.stage([order(1, "b", status="sent")]), engine)
    assert [dict(row).get("status") for row in sink.rows("number, status")] == [None, "sent"]


def test_clean_up_removes_old_files_that_nobody_references(lake: Lake) -> None:
    sink = lake.make()
    committed = sink.stage([order(1, "a")])
    sink.commit(committed)
    orphan = Path(sink.stage([order(1, "b")])[0].path.removeprefix("file://"))
    table = sink.load().description.uuid
    digits = table_digits(table)
    others = [
        orphan.with_name(name)
        for name in (
            f"connect-orders-8-a1.{digits}.own.parquet",
            # a newer coordinator has taken over in the meantime
            f"connect-orders-9-a1.{digits}.newer.parquet",
            f"connect-orders-x-a1.{digits}.parquet",
            f"somebody-elses-7-a1.{digits}.parquet",
            "connect-orders-7-a1.of-no-table.parquet",
            "connect-orders-7-a1.0123456789ab.of-another-table.parquet",
        )
    ]
    for other in others:
        other.write_bytes(b"x")
    below = (
        orphan.with_name(f"connect-orders-7-a1.{digits}.folder")
        / "region=north"
        / "00000-1-made-by-spark.parquet"
    )
    below.parent.mkdir(parents=True)
    below.write_bytes(b"x")
    # another table by now
    assert lake.catalog.remove_files(sink.name, str(uuid.uuid4()), "connect-orders-", 8) == 0
    assert lake.catalog.remove_files(sink.name, table, "connect-orders-", 8) == 2
    assert not orphan.exists()
    assert not below.exists()
    assert all(other.exists() for other in others)
    assert len(sink.rows()) == 1


def test_cleanup_keeps_files_of_a_renamed_table_in_the_folder(lake: Lake) -> None:
    renamed = lake.make()
    renamed.commit(renamed.stage([order(1, "a")]))
    name, renamed.name = renamed.name, f"{renamed.name}_old"
    lake.sql(f"ALTER TABLE lake.{name} RENAME TO {renamed.name}")
    lake.catalog.create(name, ORDERS_SCHEMA, None, {"format-version": "3"})
    made = dataclasses.replace(renamed, name=name)
    made.stage([order(1, "left")])
    assert made.description().data_location == renamed.description().data_location
    assert lake.catalog.remove_files(name, made.description().uuid, "connect-orders-", 8) == 1
    assert len(renamed.rows()) == 1


def test_cleanup_keeps_files_of_other_tables_and_respects_gc_enabled(lake: Lake) -> None:
    shared = f"file://{lake.folder}/shared"
    tables = [
        lake.make(**{"write.data.path": shared, "gc.enabled": collected})
        for collected in ("true", "false")
    ]
    for sink in tables:
        sink.commit(sink.stage([order(1, "a")]))
        sink.stage([order(1, "left")])
    removed = [
        lake.catalog.remove_files(s.name, s.description().uuid, "connect-orders-", 8)
        for s in tables
    ]
    assert removed == [1, 0]
    assert [len(sink.rows()) for sink in tables] == [1, 1]


def test_table_view_with_expired_snapshots_is_marked_incomplete(lake: Lake) -> None:
    sink = lake.make(mode=WriteMode.APPEND)
    for number in "abc":
        sink.commit(sink.stage([order(1, number)]))
    lake.sql(
        f"CALL lake.system.expire_snapshots(table => '{sink.name}', older_than => TIMESTAMP "
        "'2100-01-01', retain_last => 1)"
    )
    view = sink.load().view
    assert len(view.ancestors) == 1
    assert not view.complete


@contextmanager
def client(folder: Path, **deadlines: float) -> Iterator[LakeClient]:
    """A session in a driver process, as a coordinator has it."""
    with FakeSharedServices() as services:
        lake = LakeClient(services, lake_config(folder), **deadlines)
        lake.start()
        yield lake
        lake.stop()


def java_of(process: psutil.Process) -> psutil.Process:
    """The JVM below a driver."""
    (java,) = [child for child in process.children(recursive=True) if child.name() == "java"]
    return java


def drivers() -> list[psutil.Process]:
    """Driver processes of this test."""
    return [p for p in psutil.Process().children() if driver_program.__name__ in command_line(p)]


@pytest.mark.long
@pytest.mark.timeout(400)  # starts Spark three times
def test_driver_that_died_or_hangs_is_replaced(
    spark_environment: dict[str, str], tmp_path: Path
) -> None:
    with client(tmp_path, deadline_seconds=60.0) as lake:
        lake.create("shop.orders", ORDERS_SCHEMA)
        (process,) = drivers()
        java = java_of(process)
        os.kill(process.pid, signal.SIGKILL)
        with pytest.raises(SparkDiedError):
            lake.load("shop.orders", KEY)
        assert not lake.alive()
        psutil.wait_procs([java], timeout=10)
        assert not java.is_running(), "the JVM ends with its driver"
        lake.start()
        lake.load("shop.orders", KEY)
        (process,) = drivers()
        os.kill(java_of(process).pid, signal.SIGKILL)
        with pytest.raises(SparkDiedError):
            lake.load("shop.orders", KEY)
        lake.start()
        lake.load("shop.orders", KEY)
        (process,) = drivers()
        java = java_of(process)
        java.suspend()
        lake.deadline_seconds = 0.5
        began = time.monotonic()
        with pytest.raises(SparkDiedError):
            lake.load("shop.orders", KEY)
        assert time.monotonic() - began < 14, "the driver ends, and its user needs not give it up"
        psutil.wait_procs([process, java], timeout=10)
        assert not java.is_running()


@pytest.mark.timeout(400)  # starts Spark
def test_driver_gives_users_separate_sessions_and_ends_with_the_last(
    spark_environment: dict[str, str], tmp_path: Path
) -> None:
    with FakeSharedServices() as services:
        users = [
            LakeClient(services.user(), lake_config(folder), user=folder.name)
            for folder in (tmp_path / "a", tmp_path / "b")
        ]
        for user, folder in zip(users, ("a", "b"), strict=True):
            (tmp_path / folder).mkdir()
            user.start()
        (process,) = drivers()
        users[0].create("shop.orders", ORDERS_SCHEMA)
        users[0].load("shop.orders", KEY)
        with pytest.raises(TableMissingError):
            users[1].load("shop.orders", KEY)
        users[0].stop()
        with pytest.raises(TableMissingError):
            users[1].load("shop.orders", KEY)
        users[1].stop()
        psutil.wait_procs([process], timeout=10)
        assert not process.is_running()


class EndlessSession(LakeSession):
    """A session with a statement that never ends."""

    def endless(self) -> None:
        self.spark.range(1 << 60).selectExpr("max(id % 7)")._jdf.collectAsList()

    def sum(self) -> Any:
        return self.spark.range(10).selectExpr("sum(id)")._jdf.toJSON().collectAsList()[0]

    def refer_to_itself(self) -> None:
        cycle = Cycle()
        cycle.itself = cycle
        Cycle.newest = weakref.ref(cycle)


class Cycle:
    """An object that only the garbage collector can free."""

    newest: weakref.ref[Cycle]
    itself: Cycle


def serve(lake: Lake, connection: Connection) -> None:
    metrics, warm_up = driver_program.DriverMetrics(), WarmUp(lake.runtime)
    server = driver_program.SessionServer(lake.runtime, connection, metrics, warm_up)
    server.serve(lambda _: nullcontext())


def test_statement_past_its_timeout_is_interrupted_and_the_session_continues(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lake_session, "LakeSession", EndlessSession)
    mine, its = Pipe()
    serving = threading.Thread(target=serve, args=(lake, its))
    serving.start()
    client = Channel(mine)
    client.start_reading(lambda _: None)
    settings = lake_config(lake.folder).session_settings()
    client.call(OpenSession("orders", "lake", settings, EngineSettings()))
    with pytest.raises(
        CatalogUnavailableError,
        match=r"shop\.orders: did not finish within 2 s and was interrupted",
    ):
        client.call(Request("shop.orders", "endless", (), 2.0)).result(60.0)
    total = client.call(Request("shop.orders", "sum", (), 60.0)).result(60.0)
    assert total == '{"sum(id)":45}'
    client.call(Request("shop.orders", "refer_to_itself", (), 60.0)).result(60.0)
    client.call(Request("shop.orders", "sum", (), 60.0)).result(60.0)  # behind the collection
    assert Cycle.newest() is None
    client.close()
    serving.join()


def test_torn_cache_of_compiled_classes_counts_as_missing(tmp_path: Path) -> None:
    cache, compiled = (
        tmp_path / "folder" / "classes.zip",
        {"connectpy.A": b"1", "connectpy.A$B": b"22"},
    )
    own_classes._write(cache, compiled)
    assert own_classes._read(cache) == compiled
    assert [path.name for path in cache.parent.iterdir()] == [cache.name]
    cache.write_bytes(cache.read_bytes()[:-10])  # the machine lost power while it was written
    assert own_classes._read(cache) is None


def test_driver_has_our_classes_and_its_local_files_are_durable(lake: Lake) -> None:
    jvm: Any = lake.catalog.spark._jvm
    system = jvm.java.lang.ClassLoader.getSystemClassLoader()
    for name in ("connectpy.RecordedTable", "connectpy.RecordedCatalog"):
        assert jvm.java.lang.Class.forName(name).getClassLoader().equals(system)
    configuration = jvm.org.apache.hadoop.conf.Configuration()
    file_system = jvm.org.apache.hadoop.fs.FileSystem.get(
        jvm.java.net.URI.create("file:///"), configuration
    )
    assert file_system.getClass().getName() == "connectpy.DurableFileSystem"


def test_rows_that_are_deleted_are_not_found_again(lake: Lake) -> None:
    sink = lake.make()
    assert sink.commit(sink.stage([order(1, "a"), order(1, "b")])).engine is EngineName.APPEND
    outcome = sink.commit(sink.stage([order(1, "b"), order(1, "c")]))
    assert (outcome.engine, outcome.counts.replaced_rows) == (EngineName.MERGE, 1)
    gone = sink.stage([{"shop": 1, "number": number} for number in "abc"], StagedKind.DELETES)
    assert sink.commit(gone).counts.replaced_rows == 3
    assert sink.commit(gone).counts.replaced_rows == 0


def test_clean_up_takes_the_checksums_of_other_file_systems_along(lake: Lake) -> None:
    sink = lake.make()
    sink.commit(sink.stage([order(1, "a")]))
    described = sink.description()
    data = Path(described.data_location.removeprefix("file://"))
    left = (
        data
        / StagedFileName("gone", Epoch(1, "a1"), table_digits(described.uuid), 1, "0", 0).encode()
    )
    # as another file system's writer leaves it
    for path in (left, left.with_name(f".{left.name}.crc")):
        path.write_bytes(b"")
    assert (
        lake.catalog.remove_files(sink.name, described.uuid, StagedFileName.prefix("gone"), 2) == 1
    )
    assert not [path for path in data.iterdir() if left.name in path.name]


@contextmanager
def recorded(lake: Lake, folder: Path) -> Iterator[list[Path]]:
    """Record the files that the JVM forces to the disk inside the block, in order."""
    jvm: Any = lake.catalog.spark._jvm
    jfr = jvm.jdk.jfr
    forced: list[Path] = []
    with closing(jfr.Recording()) as recording:
        recording.enable("jdk.FileForce").withoutThreshold()
        recording.start()
        yield forced
        recording.stop()
        events = jvm.java.io.File(str(folder / "events.jfr")).toPath()
        recording.dump(events)
        forced += [
            Path(event.getString("path"))
            for event in jfr.consumer.RecordingFile.readAllEvents(events)
        ]


def lasts(file: Path, forced: Sequence[Path]) -> bool:
    """Return True if the file is on disk, and its name was synced to the folder after its
    content.
    """
    return file in forced and file.parent in forced[forced.index(file) :]


@contextmanager
def session_of(lake: Lake, config: SparkConfig, folder: Path) -> Iterator[Lake]:
    """Another session of the same JVM."""
    session = lake.runtime.new_session(config.session_settings())
    yield Lake(lake.runtime, LakeSession(session, config.catalog, EngineSettings()), folder)
    activate(lake.catalog.spark)


@pytest.mark.parametrize("hadoop", [{}, {"said.of": "file systems"}])
def test_commit_files_are_synced_before_the_catalog_refers_to_them(
    lake: Lake, tmp_path: Path, hadoop: dict[str, str]
) -> None:
    config = dataclasses.replace(lake_config(tmp_path), hadoop_properties=hadoop)
    with session_of(lake, config, tmp_path) as other:
        with recorded(lake, tmp_path) as forced:
            sink = other.make()
            sink.commit(sink.stage([order(1, "a")]))
        folder = Path(sink.description().location.removeprefix("file://"), "metadata")
        written = set(folder.iterdir())
        assert len(written) == 4  # of two snapshots' metadata; a manifest and its list
        assert all(lasts(file, forced) for file in written)
        for made in (folder, folder.parent):
            assert made.parent in forced


@pytest.mark.parametrize("engine", ENGINES)
def test_files_that_spark_writes_are_synced_and_have_no_checksums(
    lake: Lake, engine: EngineName, tmp_path: Path
) -> None:
    staged: list[Path] = []
    with recorded(lake, tmp_path) as forced:
        sink = lake.make(spec=BY_REGION)
        for row in (order(1, "a"), order(1, "a", "south")):
            files = sink.stage([row, order(2, "b")])
            staged += [Path(file.path.removeprefix("file://")) for file in files]
            sink.commit(files, engine)
        patch = sink.stage([order(1, "a", None)], StagedKind.CHANGES, ["region"])
        staged += [Path(file.path.removeprefix("file://")) for file in patch]
        sink.commit(patch, engine)
    folder = Path(sink.description().location.removeprefix("file://"))
    written = {path for path in folder.rglob("*") if path.is_file()} - set(staged)
    assert {path.suffix for path in written} == {".parquet", ".puffin", ".avro", ".json"}
    assert not [path for path in written if not lasts(path, forced)]
    folders = [
        path
        for path in folder.rglob("*")
        if path.is_dir() and path not in {file.parent for file in staged}
    ]
    assert folders
    assert not [path for path in folders if path.parent not in forced]


def test_hadoop_catalog_syncs_metadata_before_and_after_each_rename(
    lake: Lake, tmp_path: Path
) -> None:
    config = SparkConfig("lake", {"type": "hadoop", "warehouse": f"file://{tmp_path}/warehouse"})
    with session_of(lake, config, tmp_path) as other:
        with recorded(lake, tmp_path) as forced:
            sink = other.make()
            sink.commit(sink.stage([order(1, "a")]))
        folder = Path(sink.description().location.removeprefix("file://"), "metadata")
        written = set(folder.iterdir())
        renamed = {file for file in written if file.suffix in (".json", ".text")}
        assert len(renamed) == 3  # of two snapshots' metadata, and which is the newest
        assert all(lasts(file, forced) for file in written - renamed)
        before = [path for path in forced if path.parent == folder and path not in written]
        assert len(before) == 4  # the newest metadata was written twice
        assert all(forced[forced.index(path) :].count(folder) >= 2 for path in before), (
            "made, and renamed"
        )
