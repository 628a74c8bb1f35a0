"""What a source task's session does when its task ends, whatever its questions are waiting for."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import replace
from typing import Any, cast

import pytest
from fixtures.worker_slow_offsets import SlowOffsets

from connect_py.api.errors import ConnectError
from connect_py.model import ConnectorTaskId, TargetState
from connect_py.storage.connector_offset_store import ConnectorOffsetStore, ConnectorOffsetStores
from connect_py.storage.offset_store import OffsetStore
from connect_py.task.messages import (
    Answer,
    CopySourceOffsets,
    FenceZombies,
    ReadSourceOffsets,
    TaskSpec,
    WriteSourceOffsets,
)
from connect_py.worker.request_threads import THREADS, RequestThreads
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
        self.opening, self.may_open, self.closed = (
            threading.Event(),
            threading.Event(),
            threading.Event(),
        )

    @contextlib.contextmanager
    def open(self, connector: str, config: Mapping[str, str], timeout: float) -> Iterator[Store]:
        self.opening.set()
        if not self.may_open.wait(SECONDS):
            raise ConnectError("never opened")
        try:
            yield Store()
        finally:
            self.closed.set()


class CopyingStores:
    """A topic of the connector's own, where offsets are safe at once; the worker's takes as long as
    a test wants."""

    def __init__(self) -> None:
        self.shared, own = SlowOffsets(), SlowOffsets()
        own.arrival.set_result(None)
        self.store = ConnectorOffsetStore(
            "c", cast(OffsetStore, self.shared), cast(OffsetStore, own)
        )

    @contextlib.contextmanager
    def open(
        self, connector: str, config: Mapping[str, str], timeout: float
    ) -> Iterator[ConnectorOffsetStore]:
        yield self.store


class GivenUp:
    """A gate whose worker stops."""

    def fence_zombie_source_tasks(self, name: str) -> Future[None]:
        answer: Future[None] = Future()
        answer.cancel()
        answer.set_running_or_notify_cancel()
        return answer


def session_of(stores: SlowStores | CopyingStores, threads: RequestThreads) -> SourceTaskSession:
    return SourceTaskSession(
        SPEC, None, cast(ConnectorOffsetStores, stores), cast(SourceTaskGate, GivenUp()), threads
    )


def heard() -> tuple[list[Answer], threading.Event, Callable[[Answer], None]]:
    """Answers, when the first one is there, and what takes them."""
    answers, there = list[Answer](), threading.Event()

    def take(answer: Answer) -> None:
        answers.append(answer)
        there.set()

    return answers, there, take


def test_session_closes_without_waiting_for_a_topic_being_opened() -> None:
    stores, (answers, there, take) = SlowStores(), heard()
    session = session_of(stores, RequestThreads())
    session.answer(ReadSourceOffsets(1, [{"file": "a"}]), take)
    assert stores.opening.wait(SECONDS)
    session.close()  # would wait here until the topic is open, and with it whoever stops the task
    assert not stores.closed.is_set()
    stores.may_open.set()
    assert stores.closed.wait(SECONDS)
    assert there.wait(SECONDS)
    assert answers == [Answer(1, [{"at": 1}])]


def test_offsets_too_late_to_be_copied_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        session = session_of(SlowStores(), RequestThreads())
        session.close()
        session.copy(CopySourceOffsets([({"file": "a"}, {"at": 1})]))
    assert "offsets were stored only in the connector's own topic" in caplog.text


def test_abandoned_question_is_answered_with_an_error() -> None:
    answers, there, take = heard()
    session_of(SlowStores(), RequestThreads()).answer(FenceZombies(7), take)
    assert there.wait(SECONDS)
    assert answers == [Answer(7, error="the worker is stopping")]


def test_task_has_ended_only_after_its_offsets_are_stored() -> None:
    offsets, (answers, there, take) = SlowOffsets(), heard()
    session = SourceTaskSession(SPEC, cast(OffsetStore, offsets), None, None, RequestThreads())
    session.answer(WriteSourceOffsets(1, [({"file": "a"}, {"at": 1})]), take)
    assert offsets.writing.wait(SECONDS)
    session.close()
    assert not session.ended(0.0)  # a successor would store its offsets first, and these over them
    offsets.arrival.set_result(None)
    assert session.ended(SECONDS)
    assert there.wait(SECONDS)
    assert answers == [Answer(1)]


@pytest.mark.parametrize("asked", [False, True])
def test_task_has_ended_only_after_its_offsets_are_copied(asked: bool) -> None:
    stores, (answers, there, take), offsets = CopyingStores(), heard(), [({"file": "a"}, {"at": 1})]
    session = session_of(stores, RequestThreads())
    if asked:
        session.answer(WriteSourceOffsets(1, offsets), take)
        assert there.wait(SECONDS)
        assert answers == [Answer(1)]  # the task need not wait for the copy
    else:
        session.copy(CopySourceOffsets(offsets))
    assert stores.shared.writing.wait(SECONDS)
    session.close()
    assert not session.ended(0.0)  # a reset would be undone by this copy
    stores.shared.arrival.set_result(None)
    assert session.ended(SECONDS)


def test_abandoned_or_refused_copy_does_not_block_the_session() -> None:
    threads, stores = RequestThreads(), SlowStores()
    session = session_of(stores, threads)
    for number in range(THREADS):
        session.answer(ReadSourceOffsets(number, [{"file": "a"}]), lambda _: None)
    assert stores.opening.wait(SECONDS)
    session.copy(CopySourceOffsets([({"file": "a"}, {"at": 1})]))  # waits for a thread
    threads.close()
    session.copy(CopySourceOffsets([({"file": "a"}, {"at": 2})]))
    assert session.ended(SECONDS)
    stores.may_open.set()


def test_nothing_is_stored_for_a_task_that_has_ended() -> None:
    offsets, (answers, there, take) = SlowOffsets(), heard()
    threads = RequestThreads()
    threads.enter("c")  # for another task of the connector
    session = SourceTaskSession(SPEC, cast(OffsetStore, offsets), None, None, threads)
    session.close()
    session.answer(WriteSourceOffsets(1, [({"file": "a"}, {"at": 1})]), take)
    assert there.wait(SECONDS)
    assert answers == [Answer(1, error="cannot store offsets: the task has ended")]
    assert offsets.stored == []


def test_connector_with_hanging_questions_does_not_delay_other_connectors() -> None:
    threads, hanging = RequestThreads(), SlowStores()
    stuck = session_of(hanging, threads)
    for number in range(50):
        stuck.answer(ReadSourceOffsets(number, [{"file": "a"}]), lambda _: None)
    assert hanging.opening.wait(SECONDS)
    stores, (answers, there, take) = SlowStores(), heard()
    stores.may_open.set()
    other = replace(SPEC, id=ConnectorTaskId("other", 0))
    session = SourceTaskSession(other, None, cast(ConnectorOffsetStores, stores), None, threads)
    session.answer(ReadSourceOffsets(7, [{"file": "a"}]), take)
    assert there.wait(SECONDS)
    assert answers == [Answer(7, [{"at": 1}])]
    hanging.may_open.set()
    threads.close()
