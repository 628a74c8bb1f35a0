"""Waits of connectors and tasks are recorded in the same way by the worker's contexts and the
fakes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from connect_py.api.waiting import WaitReporter
from connect_py.model import ConnectorTaskId, TargetState
from connect_py.task.messages import Waits
from connect_py.task.sink.sink_task_context import WorkerSinkTaskContext
from connect_py.task.source.source_task_context import WorkerSourceTaskContext
from connect_py.task.wait_board import SHOWN_AFTER_SECONDS, WaitBoard
from connect_py.testing import (
    FakeClock,
    FakeConnectorContext,
    FakeSinkTaskContext,
    FakeSourceTaskContext,
    FakeWaiting,
)
from connect_py.worker import connector_process
from connect_py.worker.connector_messages import ConnectorEvent, StartConnector
from connect_py.worker.connector_process import ConnectorInstance

Shown = Callable[[], Mapping[str, str]]
TASK = ConnectorTaskId("c", 0)
NOTHING: Any = None


def fake(context: Any) -> tuple[WaitReporter, Shown]:
    assert isinstance(context, FakeWaiting)
    return context, lambda: dict(context.waiting_for)


def shown_by(board: WaitBoard, clock: FakeClock, sent: list[Any]) -> Shown:
    def shown() -> Mapping[str, str]:
        clock.now += SHOWN_AFTER_SECONDS
        board.send_changes()
        return {sent[-1].what: sent[-1].reason} if sent and sent[-1] is not None else {}

    return shown


def of_task(kind: str) -> tuple[WaitReporter, Shown]:
    clock, sent = FakeClock(), list[Any]()
    board = WaitBoard(clock, sent.append)
    made: WaitReporter
    if kind == "sink":
        made = WorkerSinkTaskContext(TASK, 1, {}, *[NOTHING] * 7, {}, board)
    else:
        made = WorkerSourceTaskContext(TASK, {}, *[NOTHING] * 4, {}, board)
    return made, shown_by(board, clock, sent)


def of_connector(monkeypatch: pytest.MonkeyPatch) -> tuple[WaitReporter, Shown]:
    clock, news = FakeClock(), list[ConnectorEvent]()
    monkeypatch.setattr(connector_process, "SystemClock", lambda: clock)
    instance = ConnectorInstance(
        NOTHING, StartConnector("c", {}, TargetState.STARTED), news.append, NOTHING
    )

    def shown() -> Mapping[str, str]:
        clock.now += SHOWN_AFTER_SECONDS
        instance.send_waiting()
        last = news[-1].event.waiting if news and isinstance(news[-1].event, Waits) else None
        return {} if last is None else {last.what: last.reason}

    return instance, shown


@pytest.fixture(
    params=["sink", "source", "connector", "fake sink", "fake source", "fake connector"]
)
def reporter(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> tuple[WaitReporter, Shown]:
    match request.param:
        case "fake sink":
            return fake(FakeSinkTaskContext())
        case "fake source":
            return fake(FakeSourceTaskContext())
        case "fake connector":
            return fake(FakeConnectorContext())
        case "connector":
            return of_connector(monkeypatch)
        case kind:
            return of_task(kind)


def test_status_shows_the_newest_reason_until_the_wait_ends(
    reporter: tuple[WaitReporter, Shown],
) -> None:
    waits, shown = reporter
    assert shown() == {}
    waits.waits("catalog", "refused")
    assert shown() == {"catalog": "refused"}
    waits.waits("catalog", None)
    waits.waits("catalog", None)
    assert shown() == {}
    waits.waits("catalog", "no such host")
    assert shown() == {"catalog": "no such host"}
