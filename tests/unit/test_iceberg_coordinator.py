"""What the coordinator makes of tables that refuse: the others of the same cycle go on."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from iceberg_staging_rows import ORDERS_0, config

from connect_py.testing import FakePluginMetrics, FakeSinkTaskContext
from connectors.iceberg.coordinator.coordinator import RoundRobin, _CoordinatorEpoch
from connectors.iceberg.coordinator.freshness import STALE_MS, Freshness
from connectors.iceberg.coordinator.retry_tracker import RetryTracker
from connectors.iceberg.errors import TableUnsuitableError
from connectors.iceberg.iceberg_metrics import IcebergMetrics
from connectors.iceberg.protocol.actions import CommitTable
from connectors.iceberg.protocol.commit_request import CommitOutcome, CommitStatus, EngineName
from connectors.iceberg.protocol.coordinator_state import CoordinatorState
from connectors.iceberg.protocol.ledger import TableView
from connectors.iceberg.protocol.messages import CommitComplete, Message, Range, Report, TablePart
from connectors.iceberg.protocol.positions import Epoch
from connectors.iceberg.protocol.source_progress import CoordinatorSettings, TableAge, TopicInfo
from connectors.iceberg.schema.table import StagedFile, StagedKind

GOOD, BAD = "db.good", "db.bad"


class Tables:
    """A table that takes commits, and one whose key column somebody dropped."""

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
        except Exception as error:  # noqa: BLE001 - handed to whoever asks for the result, as an executor does
            done.set_exception(error)
        return done


class Channel:
    """What the coordinator says."""

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
    made.tell({GOOD: TableAge(900_000, complete=True), BAD: TableAge(900_000, complete=False)})
    assert shown(metrics, GOOD) == (900, 0)
    assert shown(metrics, BAD) == (900, 100)
    now[0] += STALE_MS
    made.tell({GOOD: TableAge(1_080_000, complete=True), BAD: TableAge(None, complete=False)})
    assert shown(metrics, GOOD) == (1080, 0)
    assert shown(metrics, BAD) == (900, 190)
    now[0] += STALE_MS + 1000
    made.measure()
    assert shown(metrics, GOOD) == (1080, 101)


def test_table_of_unknown_age_has_no_lag_metric() -> None:
    metrics = FakePluginMetrics()
    Freshness(IcebergMetrics(metrics), lambda: 1).tell({GOOD: TableAge(None, complete=False)})
    assert not any("lag" in name or "through" in name for name, _ in metrics.made)


def test_table_that_cannot_commit_does_not_stop_other_tables() -> None:
    tables, channel, executor = Tables(), Channel(), Here()
    made: Any = (config(tables=f"{GOOD},{BAD}"), FakeSinkTaskContext(connector="c", topics={"orders": 1}))
    troubles = RetryTracker(IcebergMetrics(FakePluginMetrics()), FakeSinkTaskContext(), None, 1000)
    freshness = Freshness(IcebergMetrics(FakePluginMetrics()))
    life = _CoordinatorEpoch(*made, tables, Silent(), troubles, freshness, None, threading.Event())  # type: ignore[arg-type]
    settings = CoordinatorSettings("k", 0, 1000, 300, max_tries=1)
    state = CoordinatorState(settings, "x", new_uuid=iter("abcd").__next__)
    life._state, life._executor, life._writer = state, executor, channel  # type: ignore[assignment]
    state.begin({"orders": TopicInfo("id", (0,))}, {}, {name: tables.view(name) for name in (GOOD, BAD)}, None, 0)

    def carry_out(actions: list[Any]) -> None:
        life._carry_out(actions)
        while not life._answers.empty():
            carry_out(life._answers.get()())

    carry_out(state.on_tick(1000))
    file = StagedFile(StagedKind.ROWS, "f", 5, 1, 0, 0)
    parts = {name: TablePart(name, 0, 0, (file,)) for name in (GOOD, BAD)}
    report = Report("task", 0, state.epoch, 1, {ORDERS_0: Range("id", 0, 0, "n", 0, 5, parts)})
    carry_out(state.on_message(report))
    assert tables.landed == [GOOD]
    assert not state.ended
    (complete,) = [message for message in channel.sent if isinstance(message, CommitComplete)]
    assert complete.releases[ORDERS_0].floor == 0, "the rows of the other one are read again"
    assert state._progress.tables[GOOD].needs[ORDERS_0] == 5
