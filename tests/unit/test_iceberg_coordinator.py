"""The coordinator commits other tables of a cycle if one of them refuses its commit."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from iceberg_staging_rows import ORDERS_0, config

from connect_py.testing import FakePluginMetrics, FakeSinkTaskContext
from connectors.iceberg.coordinator.coordinator import (
    CoordinatorEpoch,
    CoordinatorParts,
    RoundRobin,
    RunStatus,
)
from connectors.iceberg.coordinator.freshness import EXPIRY_MS, Freshness
from connectors.iceberg.coordinator.retry_tracker import RetryTracker
from connectors.iceberg.coordinator.table_executor import TableExecutor
from connectors.iceberg.errors import TableUnsuitableError
from connectors.iceberg.protocol.actions import CommitTable
from connectors.iceberg.protocol.commit_request import CommitOutcome, CommitStatus, EngineName
from connectors.iceberg.protocol.coordinator_state import CoordinatorState
from connectors.iceberg.protocol.iceberg_metrics import IcebergMetrics
from connectors.iceberg.protocol.ledger import TableView
from connectors.iceberg.protocol.messages import CommitComplete, Message, Range, Report, TablePart
from connectors.iceberg.protocol.positions import Epoch
from connectors.iceberg.protocol.source_progress import CoordinatorSettings, TableAge, TopicInfo
from connectors.iceberg.table.table import StagedFile, StagedKind

GOOD, BAD = "db.good", "db.bad"


class Tables:
    """Two tables, of which the second lacks its key column and refuses commits."""

    def __init__(self) -> None:
        self.landed: list[str] = []

    def tables_of_commit(self, name: str) -> frozenset[str]:
        return frozenset({name})

    def is_suspect(self, _name: str) -> bool:
        return False

    def view(self, name: str) -> TableView:
        return TableView(name, (), True, frozenset(), None)

    view_to_commit = view

    def commit(self, request: CommitTable, epoch: Epoch) -> CommitOutcome:
        if request.table == BAD:
            raise TableUnsuitableError(BAD, "has no key column id")
        self.landed.append(request.table)
        return CommitOutcome(CommitStatus.COMMITTED, EngineName.APPEND, 1)

    def clean(self, name: str, table_uuid: str, epoch: Epoch) -> None:
        pass


class Here:
    """Runs each call while it is submitted."""

    def submit(self, _tables: object, function: Callable[..., Any], *arguments: Any) -> Future[Any]:
        done: Future[Any] = Future()
        try:
            done.set_result(function(*arguments))
        except Exception as error:  # noqa: BLE001 - raised by result(), as in an executor
            done.set_exception(error)
        return done


class Channel:
    """Channel that records the messages of the coordinator."""

    def __init__(self) -> None:
        self.sent: list[Message] = []

    def send(self, messages: list[Message]) -> None:
        self.sent += messages


class Silent:
    """Listens to commits."""

    def on_cycle_complete(self, *_: Any) -> None:
        pass


def test_round_robin_visits_tables_in_turns_as_they_change() -> None:
    turns = RoundRobin()
    assert turns.next([], 2) == []
    assert turns.next(["c", "a", "b"], 2) == ["a", "b"]
    assert turns.next(["a", "b", "c"], 2) == ["c", "a"]
    assert turns.next(["aa", "b", "c"], 1) == ["aa"]
    assert turns.next(["b"], 5) == ["b"]


def shown(metrics: FakePluginMetrics, table: str) -> tuple[float, float]:
    """Until when all is in, and the lag, in seconds."""
    names = ("iceberg_valid_through_seconds", "iceberg_lag_seconds")
    found: Any = [metrics.gauge(name, "", {"table": table}) for name in names]
    return found[0].value, found[1].value


def test_quiet_table_age_follows_topic_checks_and_lags_without_them() -> None:
    metrics, now = FakePluginMetrics(), [1_000_000]
    made = Freshness(IcebergMetrics(metrics), lambda: now[0])
    made.update({GOOD: TableAge(900_000, complete=True), BAD: TableAge(900_000, complete=False)})
    assert shown(metrics, GOOD) == (900, 0)
    assert shown(metrics, BAD) == (900, 100)
    now[0] += EXPIRY_MS
    made.update({GOOD: TableAge(1_080_000, complete=True), BAD: TableAge(None, complete=False)})
    assert shown(metrics, GOOD) == (1080, 0)
    assert shown(metrics, BAD) == (900, 190)
    now[0] += EXPIRY_MS + 1000
    made.measure()
    assert shown(metrics, GOOD) == (1080, 101)


def test_table_of_unknown_age_has_no_lag_metric() -> None:
    metrics = FakePluginMetrics()
    Freshness(IcebergMetrics(metrics), lambda: 1).update({GOOD: TableAge(None, complete=False)})
    assert not any("lag" in name or "through" in name for name, _ in metrics.measurements)


class Cycle:
    """One cycle of a coordinator whose tables all get rows from one partition."""

    def __init__(self, tables: Tables, executor: Any, *names: str) -> None:
        self.channel, self.names = Channel(), names
        metrics = IcebergMetrics(FakePluginMetrics())
        manager: Any = tables
        events: Any = Silent()
        parts = CoordinatorParts(
            config(tables=",".join(names)),
            FakeSinkTaskContext(connector="c", topics={"orders": 1}),
            manager,
            events,
            RetryTracker(metrics, FakeSinkTaskContext(), None, 1000),
            Freshness(metrics),
            bounded=None,
            schedule=None,
            stopping=threading.Event(),
        )
        settings = CoordinatorSettings("k", 0, 1000, 300, max_tries=1)
        self.state = CoordinatorState(settings, "x", new_uuid=iter("abcdefgh").__next__)
        channel: Any = self.channel
        self.epoch = CoordinatorEpoch(parts, RunStatus(), executor, channel, channel, self.state)
        self.state.begin(
            {"orders": TopicInfo("id", (0,))},
            {},
            {name: tables.view(name) for name in names},
            None,
            0,
        )

    def start(self) -> None:
        """Begin the cycle and report five rows for each table."""
        self.epoch._perform_all(self.state.on_tick(1000))
        file = StagedFile(StagedKind.ROWS, "f", 5, 1, 0, 0)
        parts = {name: TablePart(name, 0, 0, (file,)) for name in self.names}
        report = Report(
            "task", 0, self.state.epoch, 1, {ORDERS_0: Range("id", 0, 0, "n", 0, 5, parts)}
        )
        self.epoch._perform_all(self.state.on_message(report))

    def finish(self) -> CommitComplete:
        """Carry out answers until the cycle is complete."""
        while not (
            complete := [
                message for message in self.channel.sent if isinstance(message, CommitComplete)
            ]
        ):
            self.epoch._perform_all(self.epoch._answers.get(timeout=10)())
        return complete[0]


def test_table_that_cannot_commit_does_not_stop_other_tables() -> None:
    tables = Tables()
    cycle = Cycle(tables, Here(), GOOD, BAD)
    cycle.start()
    complete = cycle.finish()
    assert tables.landed == [GOOD]
    assert not cycle.state.ended
    assert complete.releases[ORDERS_0].floor == 0, "the rows of the other one are read again"
    assert cycle.state._progress.tables[GOOD].needs[ORDERS_0] == 5


class SimultaneousTables(Tables):
    """A commit lands once both commits of the cycle are in progress."""

    def __init__(self) -> None:
        super().__init__()
        self.both = threading.Barrier(2, timeout=10)

    def commit(self, request: CommitTable, epoch: Epoch) -> CommitOutcome:
        self.both.wait()
        return super().commit(request, epoch)


def test_tables_of_a_cycle_are_committed_in_parallel() -> None:
    tables, executor = SimultaneousTables(), TableExecutor(2)
    cycle = Cycle(tables, executor, GOOD, "db.other")
    cycle.start()
    complete = cycle.finish()
    executor.shutdown(wait=True)
    assert {*tables.landed} == {GOOD, "db.other"}
    assert complete.releases[ORDERS_0].floor == 5


class SuspectTables(Tables):
    """The driver died during the last commit to one of them."""

    def __init__(self) -> None:
        super().__init__()
        self.in_progress = 0

    def is_suspect(self, name: str) -> bool:
        return name == GOOD

    def commit(self, request: CommitTable, epoch: Epoch) -> CommitOutcome:
        self.in_progress += 1
        assert self.in_progress == 1, "a commit to a suspect table runs alone"
        time.sleep(0.05)
        self.in_progress -= 1
        return super().commit(request, epoch)


def test_commit_during_which_the_driver_died_is_repeated_alone() -> None:
    tables, executor = SuspectTables(), TableExecutor(3)
    cycle = Cycle(tables, executor, "db.other", GOOD)
    cycle.start()
    cycle.finish()
    executor.shutdown(wait=True)
    assert {*tables.landed} == {GOOD, "db.other"}
