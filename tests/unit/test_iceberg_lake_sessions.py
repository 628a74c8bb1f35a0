"""Sessions of a coordinator in one driver: opened on demand, kept, and opened again after the death
of the driver."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from typing import Any

import pytest
from iceberg_staging_rows import config
from iceberg_table_managers import table_manager

from connect_py.testing import FakePluginMetrics
from connectors.iceberg.coordinator.table_executor import TableExecutor
from connectors.iceberg.coordinator.table_manager import TableManager
from connectors.iceberg.driver.lake_client import LakeSessions
from connectors.iceberg.errors import CatalogUnavailableError, SparkDiedError, TableUnsuitableError
from connectors.iceberg.protocol.commit_request import (
    CommitOutcome,
    CommitRequest,
    CommitStatus,
    EngineName,
)
from connectors.iceberg.protocol.iceberg_metrics import IcebergMetrics
from connectors.iceberg.protocol.ledger import TableVersion

SECONDS = 10.0  # until a test gives up


class Driver:
    """Spark driver that a test can kill, and the commits in progress in it."""

    def __init__(self) -> None:
        self.generation = 1
        self.clients: list[Client] = []
        self.in_progress: dict[str, Client] = {}
        self.overlaps: set[frozenset[str]] = set()
        self.unsuitable_tables: set[str] = set()
        self.released = threading.Event()
        self.changed = threading.Condition()

    def client(self) -> Any:
        self.clients.append(Client(self))
        return self.clients[-1]

    def die(self) -> None:
        with self.changed:
            self.generation += 1
            self.changed.notify_all()

    def wait_for_commits(self, *tables: str) -> None:
        with self.changed:
            assert self.changed.wait_for(lambda: {*tables} <= self.in_progress.keys(), SECONDS)


class Client:
    """A `LakeClient` of that driver."""

    def __init__(self, driver: Driver) -> None:
        self.driver = driver
        self.generation = 0
        self.starts = 0
        self.is_stopped = False

    def alive(self) -> bool:
        return self.generation == self.driver.generation

    def start(self) -> None:
        self.generation = self.driver.generation
        self.starts += 1

    def stop(self) -> None:
        self.generation, self.is_stopped = 0, True

    hang_up = stop

    def commit(self, request: CommitRequest) -> CommitOutcome:
        """Run until the driver is released or killed."""
        driver, generation = self.driver, self.generation
        with driver.changed:
            assert self not in driver.in_progress.values(), "a session serves one thread at a time"
            driver.overlaps |= {frozenset({request.table, other}) for other in driver.in_progress}
            driver.in_progress[request.table] = self
            driver.changed.notify_all()
            driver.changed.wait_for(
                lambda: (
                    driver.released.is_set() or driver.generation != generation or self.is_stopped
                ),
                SECONDS,
            )
            del driver.in_progress[request.table]
        if driver.generation != generation or self.is_stopped:
            raise SparkDiedError(f"{request.table}: the Spark driver is gone")
        if request.table in driver.unsuitable_tables:
            raise TableUnsuitableError(request.table, "has no key column id")
        return CommitOutcome(CommitStatus.COMMITTED, EngineName.APPEND, 9)


class Case:
    """A table manager and an executor, as a coordinator has them."""

    def __init__(self) -> None:
        self.driver = Driver()
        self.metrics = FakePluginMetrics()
        events: Any = None
        metrics = IcebergMetrics(self.metrics)
        sessions = LakeSessions(self.driver.client, lambda _: None, metrics.driver_replaced)
        self.tables = TableManager(config(), sessions, metrics, events)
        self.executor = TableExecutor(4)

    def commit(self, table: str) -> Future[CommitOutcome]:
        request = CommitRequest(
            table,
            f"commit-{table}",
            TableVersion("u", None, None),
            "ledger",
            "{}",
            {"ledger": "{}"},
        )
        return self.executor.submit(
            self.tables.tables_of_commit(table), self.tables._commit, request
        )

    def release(self) -> None:
        with self.driver.changed:
            self.driver.released.set()
            self.driver.changed.notify_all()

    def replaced_drivers(self) -> float:
        return sum(
            each.value
            for (name, _), each in self.metrics.measurements.items()
            if "driver_replacements" in name
        )


@pytest.fixture
def case() -> Case:
    return Case()


def test_commits_to_two_tables_overlap_in_two_sessions(case: Case) -> None:
    commits = [case.commit(table) for table in ("db.a", "db.b")]
    case.driver.wait_for_commits("db.a", "db.b")
    case.release()
    assert {each.result(SECONDS).status for each in commits} == {CommitStatus.COMMITTED}
    assert case.driver.overlaps == {frozenset({"db.a", "db.b"})}
    assert [client.starts for client in case.driver.clients] == [1, 1]


def test_commits_to_one_table_share_one_session(case: Case) -> None:
    case.release()
    for commit in [case.commit("db.a") for _ in range(20)]:
        commit.result(SECONDS)
    assert not case.driver.overlaps
    assert [client.starts for client in case.driver.clients] == [1]


def test_table_gets_the_session_that_it_used_last(case: Case) -> None:
    commits = [case.commit(table) for table in ("db.a", "db.b")]
    case.driver.wait_for_commits("db.a", "db.b")
    last_clients = {**case.driver.in_progress}
    case.release()
    for commit in commits:
        commit.result(SECONDS)
    for table in ("db.b", "db.a", "db.b", "db.a"):
        with case.tables._sessions.session(table) as lake:
            assert lake is last_clients[table]


def test_failed_commit_does_not_affect_the_other_table(case: Case) -> None:
    case.driver.unsuitable_tables.add("db.a")
    failed, landed = case.commit("db.a"), case.commit("db.b")
    case.driver.wait_for_commits("db.a", "db.b")
    case.release()
    with pytest.raises(TableUnsuitableError):
        failed.result(SECONDS)
    assert landed.result(SECONDS).status is CommitStatus.COMMITTED
    assert [client.starts for client in case.driver.clients] == [1, 1]


def test_all_sessions_are_opened_again_after_the_death_of_the_driver(
    case: Case, caplog: pytest.LogCaptureFixture
) -> None:
    commits = [case.commit(table) for table in ("db.a", "db.b")]
    case.driver.wait_for_commits("db.a", "db.b")
    case.driver.die()
    for commit in commits:
        with pytest.raises(SparkDiedError):
            commit.result(SECONDS)
    assert case.tables.is_suspect("db.a")
    assert not case.tables.is_suspect("db.c")
    again = [case.commit(table) for table in ("db.a", "db.b")]
    case.driver.wait_for_commits("db.a", "db.b")
    case.release()
    assert {each.result(SECONDS).status for each in again} == {CommitStatus.COMMITTED}
    assert not case.tables.is_suspect("db.a")
    assert [client.starts for client in case.driver.clients] == [2, 2]
    assert case.replaced_drivers() == 1
    assert [each.getMessage() for each in caplog.records] == [
        "the Spark driver ended unexpectedly, continuing with a new one"
    ]


def test_idle_session_of_a_driver_that_died_costs_no_attempt(case: Case) -> None:
    case.release()
    case.commit("db.a").result(SECONDS)
    case.driver.die()
    assert case.commit("db.a").result(SECONDS).status is CommitStatus.COMMITTED


def test_stop_ends_all_commits_and_opens_no_new_session(case: Case) -> None:
    commits = [case.commit(table) for table in ("db.a", "db.b")]
    case.driver.wait_for_commits("db.a", "db.b")
    case.tables.stop()
    with case.driver.changed:
        case.driver.changed.notify_all()
    for commit in commits:
        with pytest.raises(SparkDiedError):
            commit.result(SECONDS)
    with pytest.raises(CatalogUnavailableError, match="the task is stopping"):
        case.commit("db.c").result(SECONDS)
    assert sum(client.starts for client in case.driver.clients) == 2


def test_tables_that_follow_a_table_belong_to_its_commits() -> None:
    prefix, sql = (
        "ext__cycle_aggregate__db__totals",
        "SELECT id, count(*) AS n FROM staged GROUP BY id",
    )
    props = {prefix: sql, f"{prefix}__keys": "id", f"{prefix}__from": "db.a"}
    tables = table_manager(Driver().client(), tables="db.a,db.b", **props)
    assert tables.tables_of_commit("db.a") == {"db.a", "db.a_rejected", "db.totals"}
    assert tables.tables_of_commit("db.b") == {"db.b", "db.b_rejected"}
