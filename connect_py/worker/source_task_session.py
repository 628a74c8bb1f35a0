"""`SourceTaskSession`: answers what one source task asks its worker: about offsets, and before it
may write."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import ExitStack
from typing import Any, Final, Protocol, TypeVar

from connect_py.api.errors import ConnectError
from connect_py.futures import done as finished
from connect_py.log_context import log_context
from connect_py.model import ConnectorTaskId
from connect_py.storage.connector_offset_store import ConnectorOffsetStore, ConnectorOffsetStores
from connect_py.storage.offset_store import OffsetStore
from connect_py.task.messages import (
    Answer,
    CopySourceOffsets,
    FenceZombies,
    MakeOffsetKeys,
    ReadSourceOffsets,
    SourceQuestion,
    TaskSpec,
    VerifyTask,
    WriteSourceOffsets,
)
from connect_py.worker.question_threads import QuestionThreads

# an open transaction of a producer that died hides what follows it for a minute
READ_SECONDS: Final = 120.0

log = logging.getLogger(__name__)

T = TypeVar("T")


class TaskNotWantedError(ConnectError):
    """A task is not, or no longer, this worker's to run as it was started."""


class SourceTaskGate(Protocol):
    """What the owner of cluster state does before a source task may write in transactions. Safe on
    any thread."""

    def fence_zombie_source_tasks(self, name: str) -> Future[None]:
        """Done when no producer of an earlier task set of this connector can write any more."""

    def verify_source_task(self, id: ConnectorTaskId, start_number: int) -> Future[None]:  # noqa: A002 - Connect's word
        """Done when the task, as started under that number, is still this worker's;
        TaskNotWantedError if not."""


class SourceTaskSession:
    """Lives as long as its task. Questions are answered on threads of the connector, where they may
    wait.

    Offsets that the task asks to store may still be on their way when it has ended: its place is
    free only when `ended` says so, or they would be stored over those of its successor, or over
    what a user has set.
    """

    def __init__(
        self,
        spec: TaskSpec,
        offsets: OffsetStore | None,
        stores: ConnectorOffsetStores | None,
        gate: SourceTaskGate | None,
        threads: QuestionThreads,
    ) -> None:
        """Prepare. With `stores` the connector may have a topic of its own; without, `offsets` are
        all there is."""
        self._spec = spec
        self._offsets = offsets
        self._stores = stores
        self._gate = gate
        self._threads = threads
        self._executor = threads.enter(spec.id.connector)
        self._lock = threading.Lock()
        self._writing = threading.Condition()
        self._writes = 0  # of offsets, under way
        self._closing = ExitStack()
        self._closed = False
        self._store: ConnectorOffsetStore | None = None

    def answer(self, question: SourceQuestion, reply: Callable[[Answer], None]) -> None:
        """Answer by calling `reply`, on any thread; returns at once."""

        def work() -> None:
            try:
                with log_context(self._spec.id.connector, self._spec.id.task):
                    self._ask(question).add_done_callback(
                        lambda done: reply(_answered(question.number, done))
                    )
            except Exception as error:  # noqa: BLE001 - the task gets it
                reply(_failed(question.number, error))

        self._submit(work)

    def copy(self, message: CopySourceOffsets) -> None:
        """Have the worker's topic follow the connector's own; under way until `ended` says
        otherwise."""
        with self._writing:
            closed = self._closed
            self._writes += not closed
        if closed:
            log.warning("offsets are in the connector's own topic only: the task has ended")
            return

        def work() -> Future[None]:
            with log_context(self._spec.id.connector, self._spec.id.task):
                try:
                    return self._opened().copy(message.offsets)
                except ConnectError as error:
                    log.warning("offsets are in the connector's own topic only: %s", error)
                    return finished(None)

        def begun(submitted: Future[Future[None]]) -> None:
            if submitted.cancelled() or submitted.exception() is not None:
                self._written()
            else:
                submitted.result().add_done_callback(lambda _: self._written())

        submitted = self._submit(work)
        if submitted is None:
            self._written()
        else:
            submitted.add_done_callback(begun)

    def close(self) -> None:
        """Let go of the connector's own topic. Any number of times; returns at once."""
        with self._writing:
            closed, self._closed = self._closed, True
        if not closed:
            self._submit(self._let_go)
            self._threads.leave(self._spec.id.connector)

    def ended(self, timeout: float) -> bool:
        """After `close`: wait until nothing is written any more for the task; False when that takes
        longer."""
        with self._writing:
            return self._writing.wait_for(lambda: self._writes == 0, timeout)

    def _let_go(self) -> None:
        """Waits for a question that is opening the topic just now: the thread that closes has no
        time for that."""
        with self._lock:
            self._store = None
            closing = self._closing.pop_all()
        closing.close()

    def _submit(self, work: Callable[[], T]) -> Future[T] | None:
        try:
            return self._executor.submit(work)
        except RuntimeError:
            log.debug("the worker stops; its task does, too")
            return None

    def _ask(self, question: SourceQuestion) -> Future[Any]:
        if not isinstance(question, WriteSourceOffsets):
            return self._asked(question)
        with self._writing:
            if self._closed:
                raise ConnectError("the task has ended, nothing more is stored for it")
            self._writes += 1
        try:
            written = self._asked(question)
        except BaseException:
            self._written()
            raise
        written.add_done_callback(lambda _: self._written())
        return written

    def _written(self) -> None:
        with self._writing:
            self._writes -= 1
            self._writing.notify_all()

    def _asked(self, question: SourceQuestion) -> Future[Any]:
        if isinstance(question, FenceZombies):
            return self._the_gate().fence_zombie_source_tasks(self._spec.id.connector)
        if isinstance(question, VerifyTask):
            self._the_gate().verify_source_task(self._spec.id, self._spec.start_number).result(
                READ_SECONDS
            )
            return finished(self._opened().topic)
        name = self._spec.id.connector
        if self._stores is None and not isinstance(question, MakeOffsetKeys):
            offsets = self._the_offsets()
            if isinstance(question, ReadSourceOffsets):
                offsets.refresh(READ_SECONDS)
                return finished([offsets.get(name, partition) for partition in question.partitions])
            return offsets.set(name, question.offsets)
        store = self._opened()
        if isinstance(question, ReadSourceOffsets):
            store.refresh(READ_SECONDS)
            return finished([store.get(partition) for partition in question.partitions])
        if isinstance(question, MakeOffsetKeys):
            return finished(
                [
                    key
                    for key, _ in store.records(
                        [(partition, {}) for partition in question.partitions]
                    )
                ]
            )
        copied = store.set(question.offsets)
        with self._writing:
            self._writes += 1
        copied.add_done_callback(lambda _: self._written())  # the task need not wait for that
        return finished(None)

    def _the_gate(self) -> SourceTaskGate:
        if self._gate is None:
            raise ConnectError("this worker cannot run source tasks with exactly-once support")
        return self._gate

    def _the_offsets(self) -> OffsetStore:
        if self._offsets is None:
            raise ConnectError("this worker keeps no offsets of source connectors")
        return self._offsets

    def _opened(self) -> ConnectorOffsetStore:
        """The connector's store, opened at the first question; one question at a time waits for
        that."""
        with self._lock:
            if self._store is None:
                if self._closed or self._stores is None:
                    raise ConnectError("this worker keeps no offsets for this task")
                opening = self._stores.open(
                    self._spec.id.connector, self._spec.connector_config, READ_SECONDS
                )
                self._store = self._closing.enter_context(opening)
            return self._store


def _answered(number: int, done: Future[Any]) -> Answer:
    if done.cancelled():
        return Answer(number, error="the worker is stopping")
    error = done.exception()
    return Answer(number, done.result()) if error is None else _failed(number, error)


def _failed(number: int, error: BaseException) -> Answer:
    return Answer(number, error=str(error), refused=isinstance(error, TaskNotWantedError))
