"""A sink task asks for the stop of its connector: the worker's context and the fake take it in the
same way."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from connect_py.api.task import SinkTaskContext
from connect_py.model import ConnectorTaskId
from connect_py.task.messages import RequestStop
from connect_py.task.sink.sink_task_context import WorkerSinkTaskContext
from connect_py.task.wait_board import WaitBoard
from connect_py.task.worker_client import WorkerClient
from connect_py.testing import FakeClock, FakeSinkTaskContext

Asked = Callable[[], Sequence[str]]
NOTHING: Any = None


def of_worker() -> tuple[SinkTaskContext, Asked]:
    sent: list[Any] = []
    board = WaitBoard(FakeClock(), sent.append)
    context = WorkerSinkTaskContext(
        ConnectorTaskId("c", 0),
        1,
        {},
        *[NOTHING] * 6,
        WorkerClient(NOTHING, sent.append),
        {},
        board,
    )
    return context, lambda: [message.reason for message in sent if isinstance(message, RequestStop)]


def fake() -> tuple[SinkTaskContext, Asked]:
    context = FakeSinkTaskContext()
    return context, lambda: context.stop_requests


@pytest.mark.parametrize("make", [of_worker, fake])
def test_each_stop_request_reaches_the_worker_with_its_reason(
    make: Callable[[], tuple[SinkTaskContext, Asked]],
) -> None:
    context, asked = make()
    context.request_stop("all is read")
    context.request_stop("all is read, still")
    assert asked() == ["all is read", "all is read, still"]
