"""What a source task's session does when its task ends, whatever its questions are waiting for."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import CancelledError, Future
from dataclasses import replace
from typing import Any, cast

import pytest
from fixtures.worker_slow_offsets import SlowOffsets

from connect_py.api.errors import ConnectError
from connect_py.model import ConnectorTaskId, TargetState
from connect_py.storage.connector_offset_store import ConnectorOffsetStore, ConnectorOffsetStores
from connect_py.storage.offset_store import OffsetStore
from connect_py.task.messages import (
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


def test_session_closes_without_waiting_for_a_topic_being_opened() -> None:
    stores = SlowStores()
    session = session_of(stores, RequestThreads())
    reply = session.call(ReadSourceOffsets([{"file": "a"}]))
    assert stores.opening.wait(SECONDS)
    session.close()  # would wait here until the topic is open, and with it whoever stops the task
    assert not stores.closed.is_set()
    stores.may_open.set()
    assert stores.closed.wait(SECONDS)
    assert reply.result(SECONDS) == [{"at": 1}]


def test_offsets_too_late_to_be_copied_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        session = session_of(SlowStores(), RequestThreads())
        session.close()
        session.copy(CopySourceOffsets([({"file": "a"}, {"at": 1})]))
    assert "offsets were stored only in the connector's own topic" in caplog.text


def test_abandoned_question_is_answered_with_an_error() -> None:
    reply = session_of(SlowStores(), RequestThreads()).call(FenceZombies())
    assert isinstance(reply.exception(SECONDS), CancelledError)


def test_task_has_ended_only_after_its_offsets_are_stored() -> None:
    offsets = SlowOffsets()
    session = SourceTaskSession(SPEC, cast(OffsetStore, offsets), None, None, RequestThreads())
    reply = session.call(WriteSourceOffsets([({"file": "a"}, {"at": 1})]))
    assert offsets.writing.wait(SECONDS)
    session.close()
    assert not session.ended(0.0)  # a successor would store its offsets first, and these over them
    offsets.arrival.set_result(None)
    assert session.ended(SECONDS)
    assert reply.result(SECONDS) is None


@pytest.mark.parametrize("asked", [False, True])
def test_task_has_ended_only_after_its_offsets_are_copied(asked: bool) -> None:
    stores, offsets = CopyingStores(), [({"file": "a"}, {"at": 1})]
    session = session_of(stores, RequestThreads())
    if asked:
        reply = session.call(WriteSourceOffsets(offsets))
        assert reply.result(SECONDS) is None  # the task need not wait for the copy
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
    for _ in range(THREADS):
        session.call(ReadSourceOffsets([{"file": "a"}]))
    assert stores.opening.wait(SECONDS)
    session.copy(CopySourceOffsets([({"file": "a"}, {"at": 1})]))  # waits for a thread
    threads.close()
    session.copy(CopySourceOffsets([({"file": "a"}, {"at": 2})]))
    assert session.ended(SECONDS)
    stores.may_open.set()


def test_nothing_is_stored_for_a_task_that_has_ended() -> None:
    offsets = SlowOffsets()
    threads = RequestThreads()
    threads.enter("c")  # for another task of the connector
    session = SourceTaskSession(SPEC, cast(OffsetStore, offsets), None, None, threads)
    session.close()
    reply = session.call(WriteSourceOffsets([({"file": "a"}, {"at": 1})]))
    with pytest.raises(ConnectError, match="cannot store offsets: the task has ended"):
        reply.result(SECONDS)
    assert offsets.stored == []


def test_connector_with_hanging_questions_does_not_delay_other_connectors() -> None:
    threads, hanging = RequestThreads(), SlowStores()
    stuck = session_of(hanging, threads)
    for _ in range(50):
        stuck.call(ReadSourceOffsets([{"file": "a"}]))
    assert hanging.opening.wait(SECONDS)
    stores = SlowStores()
    stores.may_open.set()
    other = replace(SPEC, id=ConnectorTaskId("other", 0))
    session = SourceTaskSession(other, None, cast(ConnectorOffsetStores, stores), None, threads)
    reply = session.call(ReadSourceOffsets([{"file": "a"}]))
    assert reply.result(SECONDS) == [{"at": 1}]
    hanging.may_open.set()
    threads.close()
