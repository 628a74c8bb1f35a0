"""Commits whose `MERGE` runs on a Spark Connect server: real server, real client process, a small sink."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from fixtures.iceberg_commit import BY_REGION, Lake, Sink, lake, lake_config, order
from short_form import short_form
from spark_elsewhere import ConnectServer

from connect_py.api.errors import CommitStateUnknownError
from connect_py.testing import FakeSharedServices
from connectors.iceberg.catalog.java_table import JavaTable
from connectors.iceberg.catalog.java_classes import JavaClasses
from connectors.iceberg.commit import engine
from connectors.iceberg.commit.engine import AFTER_MERGE, BEFORE_SWAP
from connectors.iceberg.driver.connect_client import CONNECT_SERVICE, ConnectClient, RemoteSpark
from connectors.iceberg.errors import CatalogUnavailableError, TableUnsuitableError
from connectors.iceberg.protocol.commit_request import CommitOutcome, CommitRequest, CommitStatus, EngineName
from connectors.iceberg.schema.table import StagedFile, StagedKind

__all__ = ["lake"]

pytestmark = pytest.mark.timeout(300)  # a server's first MERGE loads most of Spark

START_SECONDS = 60.0
NEVER_ENDS = (
    "CREATE TABLE lake.shop.never USING iceberg AS "
    "SELECT count(*) AS found FROM range(0, 1000000000000000, 1, 2) WHERE hash(id) = 7"
)
SCRATCH = {"work_branch": "connect-py-scratch-0123456789ab-"}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, spark_environment: Mapping[str, str]) -> Iterator[ConnectServer]:
    with ConnectServer(tmp_path_factory.mktemp("connect"), spark_environment) as started:
        yield started


@pytest.fixture(scope="module")
def services() -> Iterator[FakeSharedServices]:
    with FakeSharedServices() as made:
        yield made


@pytest.fixture
def client(lake: Lake, server: ConnectServer, services: FakeSharedServices) -> Callable[..., ConnectClient]:
    def made(**settings: str) -> ConnectClient:
        program = services.shared_service(CONNECT_SERVICE, timeout_seconds=START_SECONDS)
        spark = {**lake_config(lake.folder).remote_settings(), **settings}
        return ConnectClient(RemoteSpark(server.url, spark, program))

    return made


def committed(sink: Sink, client: ConnectClient, request: CommitRequest) -> CommitOutcome:
    outcome = sink.committer().commit(request, client)
    assert outcome.status is CommitStatus.COMMITTED, outcome
    return outcome


def refs(sink: Sink) -> set[str]:
    return set(sink.lake.catalog.table(sink.name).metadata().refs)


def snapshots(sink: Sink) -> int:
    return len(sink.lake.catalog.table(sink.name).metadata().snapshots)


def amounts(sink: Sink) -> list[tuple[Any, ...]]:
    return [(shop, number, region, notes) for shop, number, region, notes in sorted(
        (row[0][1], row[1][1], dict(row).get("region"), str(dict(row).get("notes"))) for row in sink.rows()
    )]  # fmt: skip


@pytest.mark.parametrize(("version", "spec"), short_form(itertools.product((1, 2, 3), (None, BY_REGION)), [(3, None)]))
def test_upserts_deletes_and_partial_rows_land_in_one_server_merge(
    lake: Lake, client: Callable[..., ConnectClient], version: int, spec: str | None
) -> None:
    sink = lake.make(version=version, spec=spec)
    first = sink.stage([order(1, "a"), order(1, "b", "south"), order(1, "c"), order(1, "d")])
    assert committed(sink, client(), sink.request(first, **SCRATCH)).engine is EngineName.APPEND
    files: list[StagedFile] = [
        *sink.stage([order(1, "a", "south", notes=["x"]), order(2, "e")]),
        *sink.stage([{"shop": 1, "number": "b"}], StagedKind.DELETES),
        *sink.stage([order(1, "c", "west", notes=None)], StagedKind.CHANGES, unavailable=("notes",)),
    ]
    outcome = committed(sink, client(), sink.request(files, **SCRATCH))

    because = "the table's format has no deletes" if version == 1 else "Spark is behind Spark Connect"
    assert (outcome.engine, outcome.because) == (EngineName.FULL_MERGE, because)
    assert amounts(sink) == [
        (1, "a", "south", "['x']"),
        (1, "c", "west", "['a', None]"),
        (1, "d", "north", "['a', None]"),
        (2, "e", "north", "['a', None]"),
    ]
    assert refs(sink) == {"main"}
    assert snapshots(sink) == 2  # no scratch snapshot, none of staged files
    assert all(Path(file.path.removeprefix("file://")).exists() for file in files)


@pytest.mark.long  # in every run: test_commit_of_others_while_the_server_merges_repeats_the_merge
def test_attempt_that_died_leaves_branches_which_the_next_commit_removes(
    lake: Lake, client: Callable[..., ConnectClient], monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = lake.make(version=2)
    sink.commit(sink.stage([order(1, "a")]), **SCRATCH)
    request = sink.request(sink.stage([order(1, "a", "south")]), **SCRATCH)

    def dies(point: str) -> None:
        if point == AFTER_MERGE:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(engine, "fault_point", dies)
        with pytest.raises(KeyboardInterrupt):
            sink.committer().commit(request, client())
    assert len(refs(sink)) == 3

    committed(sink, client(), request)
    assert refs(sink) == {"main"}
    assert snapshots(sink) == 2
    assert amounts(sink) == [(1, "a", "south", "['a', None]")]
    assert Path(request.files[0].path.removeprefix("file://")).exists()


def test_commit_of_others_while_the_server_merges_repeats_the_merge(
    lake: Lake, client: Callable[..., ConnectClient], monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = lake.make(version=3)
    sink.commit(sink.stage([order(1, "a")]), **SCRATCH)
    request = sink.request(sink.stage([order(1, "a", "south")]), **SCRATCH)
    rival = iter([f"INSERT INTO lake.{sink.name} SELECT 9, 'z', 'east', 1, now(), NULL"])

    def merged(point: str) -> None:
        if point == AFTER_MERGE and (statement := next(rival, None)):
            lake.sql(statement)

    monkeypatch.setattr(engine, "fault_point", merged)
    outcome = committed(sink, client(), request)
    assert outcome.counts.foreign_conflicts == 1
    assert [row[:3] for row in amounts(sink)] == [(1, "a", "south"), (9, "z", "east")]
    assert refs(sink) == {"main"}


@pytest.mark.long  # in every run: test_commit_of_others_while_the_server_merges_repeats_the_merge
def test_staging_branches_are_recreated_after_a_conflicting_commit(
    lake: Lake, client: Callable[..., ConnectClient], monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = lake.make(version=3)
    sink.commit(sink.stage([order(1, "a")]), **SCRATCH)
    made, rival = JavaTable.stage_on_branches, iter(["rival"])

    def prevented(table: JavaTable, groups: Mapping[str, Any]) -> None:
        with monkeypatch.context() as patch:
            if next(rival, None):  # between the read of the metadata and the commit
                update = JavaClasses.content_file
                patch.setattr(JavaClasses, "content_file", lambda *given: (insert(), update(*given))[1])
            made(table, groups)

    def insert() -> None:
        lake.sql(f"INSERT INTO lake.{sink.name} SELECT 9, 'z', 'east', 1, now(), NULL")

    monkeypatch.setattr(JavaTable, "stage_on_branches", prevented)
    outcome = committed(sink, client(), sink.request(sink.stage([order(1, "a", "south")]), **SCRATCH))
    assert outcome.counts.foreign_conflicts == 1
    assert [row[:3] for row in amounts(sink)] == [(1, "a", "south"), (9, "z", "east")]
    assert refs(sink) == {"main"}


def test_swap_of_unknown_outcome_is_found_by_its_id(
    lake: Lake, client: Callable[..., ConnectClient], monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = lake.make(version=3)
    sink.commit(sink.stage([order(1, "a")]), **SCRATCH)
    request = sink.request(sink.stage([order(1, "a", "south")]), **SCRATCH)

    def lost(point: str) -> None:
        if point == BEFORE_SWAP:
            raise CommitStateUnknownError("no answer")

    with monkeypatch.context() as patch:
        patch.setattr(engine, "fault_point", lost)
        with pytest.raises(CommitStateUnknownError):
            sink.committer().commit(request, client())
    first = committed(sink, client(), request)
    again = committed(sink, client(), request)
    assert again.snapshot_id == first.snapshot_id
    assert amounts(sink) == [(1, "a", "south", "['a', None]")]


@pytest.mark.long  # in every run: test_upserts_deletes_and_partial_rows_land_in_one_server_merge
def test_unavailable_server_is_named_and_same_request_lands_later(
    lake: Lake, server: ConnectServer, client: Callable[..., ConnectClient]
) -> None:
    sink = lake.make(version=3)
    sink.commit(sink.stage([order(1, "a")]), **SCRATCH)
    request = sink.request(sink.stage([order(1, "a", "south")]), **SCRATCH)
    server.kill()
    try:
        with pytest.raises(CatalogUnavailableError, match=rf"Spark Connect at 127\.0\.0\.1:{server.port}: UNAVAILABLE"):
            sink.committer().commit(request, client())
    finally:
        server.start()
    committed(sink, client(), request)
    assert amounts(sink) == [(1, "a", "south", "['a', None]")]


def test_table_unknown_to_server_is_refused_without_showing_secrets(client: Callable[..., ConnectClient]) -> None:
    connect = client(**{"spark.sql.catalog.lake.password": "tell-nobody"})
    with pytest.raises(
        TableUnsuitableError, match=r"table shop\.t: Spark Connect at .*TABLE_OR_VIEW_NOT_FOUND"
    ) as told:
        connect.run("shop.t", "DELETE FROM lake.shop.`tell-nobody` WHERE true", {})
    assert "tell-nobody" not in str(told.value)


def test_endless_statement_is_interrupted_and_the_next_one_runs(
    lake: Lake, server: ConnectServer, client: Callable[..., ConnectClient]
) -> None:
    lake.make()  # the namespace
    connect = client()
    failures: list[Exception] = []

    def run() -> None:
        try:
            connect.run("shop.never", NEVER_ENDS, {})
        except CatalogUnavailableError as error:
            failures.append(error)

    before = server.tasks()
    thread = threading.Thread(target=run)
    thread.start()
    while server.tasks() == before:
        thread.join(0.2)
        assert thread.is_alive(), failures
    connect.interrupt()
    thread.join(START_SECONDS)
    assert not thread.is_alive()
    assert "the Spark Connect process is gone" in str(failures[0])
    server.said(r"Job \d+ cancelled|Executor killed task|Asked to cancel job")
    sink = lake.make(version=3)
    sink.commit(sink.stage([order(1, "a")]), **SCRATCH)
    committed(sink, client(), sink.request(sink.stage([order(1, "a", "south")]), **SCRATCH))
