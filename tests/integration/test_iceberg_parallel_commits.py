"""Tables of a cycle that are committed in parallel, each in its own session of one real driver."""

from __future__ import annotations

import itertools
import os
import signal
import statistics
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
from command_lines import command_line
from fixtures.iceberg_commit import KEY, ORDERS_KEY, ORDERS_SCHEMA, Sink, lake_config, order

from connect_py.testing import FakeSharedServices
from connectors.iceberg.coordinator.table_executor import TableExecutor
from connectors.iceberg.driver import driver_program
from connectors.iceberg.driver.lake_client import LakeClient, LakeSessions
from connectors.iceberg.errors import SparkDiedError
from connectors.iceberg.protocol.commit_request import CommitOutcome, CommitRequest, CommitStatus
from connectors.iceberg.table.table import WriteMode

NAMES = ("shop.orders", "shop.lines", "shop.returns")
ROWS = 200
WARM_UP, PAIRS = 2, int(os.environ.get("CONNECT_PY_PARALLEL_PAIRS", "2"))
SECONDS = 120.0


class Case:
    """Three tables, and the sessions of a coordinator."""

    def __init__(self, sessions: LakeSessions, clients: list[LakeClient]) -> None:
        self.sessions = sessions
        self.clients = clients
        self.replaced_drivers = 0
        self.sinks: list[Sink] = []
        self._values = itertools.count()

    def create_tables(self) -> None:
        """Create the tables and load them once."""
        modes = dict.fromkeys(
            ("write.merge.mode", "write.update.mode", "write.delete.mode"), "merge-on-read"
        )
        with self.sessions.session() as client:
            for name in NAMES:
                client.create(name, ORDERS_SCHEMA, None, {"format-version": "3", **modes})
                lake: Any = SimpleNamespace(catalog=client)
                self.sinks.append(Sink(lake, name, WriteMode.MERGE, ORDERS_KEY))

    def requests(self) -> list[CommitRequest]:
        """Stage a cycle that replaces all rows of all tables."""
        value = next(self._values)
        with self.sessions.session():
            return [
                sink.request(
                    sink.stage([order(1, str(row), notes=[str(value)]) for row in range(ROWS)])
                )
                for sink in self.sinks
            ]

    def commit(self, request: CommitRequest) -> CommitOutcome:
        with self.sessions.session(request.table) as client:
            return client.commit(request)

    def submit(
        self, executor: TableExecutor, requests: Sequence[CommitRequest]
    ) -> list[Future[CommitOutcome]]:
        return [
            executor.submit(frozenset({request.table}), self.commit, request)
            for request in requests
        ]

    def cycle_seconds(self, executor: TableExecutor) -> float:
        """Commit a cycle and return how long it took."""
        requests = self.requests()
        started = time.monotonic()
        outcomes = [each.result(SECONDS) for each in self.submit(executor, requests)]
        seconds = time.monotonic() - started
        assert {outcome.status for outcome in outcomes} == {CommitStatus.COMMITTED}
        return seconds


@pytest.fixture
def case(spark_environment: dict[str, str], tmp_path: Path) -> Iterator[Case]:
    clients: list[LakeClient] = []

    def create_client() -> LakeClient:
        clients.append(LakeClient(services, lake_config(tmp_path)))
        return clients[-1]

    def count_replaced_driver() -> None:
        case.replaced_drivers += 1

    with FakeSharedServices() as services:
        sessions = LakeSessions(create_client, lambda _: None, count_replaced_driver)
        case = Case(sessions, clients)
        case.create_tables()
        yield case
        sessions.stop()


@pytest.mark.timeout(300)  # starts Spark
@pytest.mark.long  # in every run: test_driver_that_dies_during_commits_is_replaced_for_all_sessions
def test_three_tables_in_parallel_take_less_time_than_one_after_another(case: Case) -> None:
    sequential, parallel = TableExecutor(1), TableExecutor(4)
    for _ in range(WARM_UP):
        case.cycle_seconds(parallel)
    assert len(case.clients) == 3
    pairs = [(case.cycle_seconds(sequential), case.cycle_seconds(parallel)) for _ in range(PAIRS)]
    ratios = [together / apart for apart, together in pairs]
    print(
        "s, one after another and in parallel:",
        [tuple(round(each, 2) for each in pair) for pair in pairs],
    )
    print(
        "ratios:",
        [round(each, 2) for each in ratios],
        "median:",
        round(statistics.median(ratios), 2),
    )
    for executor in (sequential, parallel):
        executor.shutdown(wait=True)
    assert len(case.clients) == 3, "sessions are kept, and there are no more than tables"
    with case.sessions.session() as client:
        for sink in case.sinks:
            view = client.load(sink.name, KEY, "main", sink.mode, sink.key_columns).view
            assert len(view.ancestors) == WARM_UP + 2 * PAIRS
    assert statistics.median(ratios) < 1.1  # other processes may use all cores


@pytest.mark.timeout(300)  # starts Spark twice
def test_driver_that_dies_during_commits_is_replaced_for_all_sessions(case: Case) -> None:
    executor = TableExecutor(4)
    case.cycle_seconds(executor)
    requests = case.requests()
    (process,) = [
        p for p in psutil.Process().children() if driver_program.__name__ in command_line(p)
    ]
    process.suspend()  # until all three are in progress
    commits = case.submit(executor, requests)
    time.sleep(0.5)
    os.kill(process.pid, signal.SIGKILL)
    for commit in commits:
        with pytest.raises(SparkDiedError):
            commit.result(SECONDS)
    assert {each.result(SECONDS).status for each in case.submit(executor, requests)} == {
        CommitStatus.COMMITTED
    }
    executor.shutdown(wait=True)
    assert (case.replaced_drivers, len(case.clients)) == (1, 3)
