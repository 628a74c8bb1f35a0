"""What a source task's session does when its task ends, whatever its questions are waiting for."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, cast

import pytest

from connect_py.api.errors import ConnectError
from connect_py.model import ConnectorTaskId, TargetState
from connect_py.storage.connector_offset_store import ConnectorOffsetStores
from connect_py.task.messages import Answer, CopySourceOffsets, FenceZombies, ReadSourceOffsets, TaskSpec
from connect_py.worker.source_task_session import SourceTaskGate, SourceTaskSession

SPEC = TaskSpec(ConnectorTaskId("c", 0), {}, {}, {}, TargetState.STARTED, 0, ())
SECONDS = 30.0


class Store:
    def refresh(self, timeout: float) -> None:
        return

    def get(self, partition: Any) -> Any:
        return {"at": 1}


class SlowStores:
    """A topic that opens when the test says so, as behind somebody's open transaction."""

    def __init__(self) -> None:
        self.opening, self.may_open, self.closed = threading.Event(), threading.Event(), threading.Event()

    @contextlib.contextmanager
    def open(self, connector: str, config: Mapping[str, str], timeout: float) -> Iterator[Store]:
        self.opening.set()
        if not self.may_open.wait(SECONDS):
            raise ConnectError("never opened")
        try:
            yield Store()
        finally:
            self.closed.set()


class GivenUp:
    """A gate whose worker stops."""

    def fence_zombie_source_tasks(self, name: str) -> Future[None]:
        answer: Future[None] = Future()
        answer.cancel()
        answer.set_running_or_notify_cancel()
        return answer


def session_of(stores: SlowStores, executor: ThreadPoolExecutor) -> SourceTaskSession:
    return SourceTaskSession(SPEC, None, cast(ConnectorOffsetStores, stores), cast(SourceTaskGate, GivenUp()), executor)


def test_closing_does_not_wait_for_a_topic_that_is_being_opened_and_lets_go_of_it_afterwards() -> None:
    stores, answers = SlowStores(), list[Answer]()
    with ThreadPoolExecutor(2) as executor:
        session = session_of(stores, executor)
        session.answer(ReadSourceOffsets(1, [{"file": "a"}]), answers.append)
        assert stores.opening.wait(SECONDS)
        session.close()  # would wait here until the topic is open, and with it whoever stops the task
        assert not stores.closed.is_set()
        stores.may_open.set()
        assert stores.closed.wait(SECONDS)
    assert answers == [Answer(1, [{"at": 1}])]


def test_offsets_that_come_too_late_to_be_copied_are_told_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING), ThreadPoolExecutor(2) as executor:
        session = session_of(SlowStores(), executor)
        session.close()
        session.copy(CopySourceOffsets([({"file": "a"}, {"at": 1})]))
    assert "offsets are in the connector's own topic only" in caplog.text


def test_a_question_that_is_given_up_is_answered_all_the_same() -> None:
    answers: list[Answer] = []
    with ThreadPoolExecutor(2) as executor:
        session_of(SlowStores(), executor).answer(FenceZombies(7), answers.append)
    assert answers == [Answer(7, error="the worker is stopping")]
