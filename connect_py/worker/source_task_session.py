"""`SourceTaskSession`: processes the requests of one source task."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import ExitStack
from functools import partial
from typing import Any, Final, Protocol, TypeVar

from connect_py.api.errors import ConnectError
from connect_py.futures import done, pass_on
from connect_py.log_context import log_context
from connect_py.model import ConnectorTaskId
from connect_py.storage.connector_offset_store import ConnectorOffsetStore, ConnectorOffsetStores
from connect_py.storage.offset_store import OffsetStore
from connect_py.task.messages import (
    CopySourceOffsets,
    FenceZombies,
    MakeOffsetKeys,
    ReadSourceOffsets,
    SourceTaskCall,
    TaskSpec,
    VerifyTask,
    WriteSourceOffsets,
)
from connect_py.worker.request_threads import RequestThreads

# long, because a transaction that a killed producer left open blocks readers for one minute
READ_SECONDS: Final = 120.0

log = logging.getLogger(__name__)

T = TypeVar("T")


class SourceTaskGate(Protocol):
    """Herder actions that permit a source task to write in transactions. Thread-safe."""

    def fence_zombie_source_tasks(self, name: str) -> Future[None]:
        """Fence the producers of all earlier task sets of this connector."""

    def verify_source_task(self, id: ConnectorTaskId, start_number: int) -> Future[None]:  # noqa: A002 - named as in Kafka Connect
        """Verify that the task with this start number is assigned to this worker.

        `start_number` is the config topic offset of the record that last started or changed the
        connector. The future fails with TaskNotWantedError if the task is not assigned.
        """


class SourceTaskSession:
    """Processes the requests of one task on its connector's threads, where they may block.

    Offset writes may still be in progress after the task has ended. They could overwrite offsets
    that are written by the next run of the task or by a user. Therefore, the next run must not
    start before `ended` returns True.
    """

    def __init__(
        self,
        spec: TaskSpec,
        offsets: OffsetStore | None,
        stores: ConnectorOffsetStores | None,
        gate: SourceTaskGate | None,
        threads: RequestThreads,
    ) -> None:
        """Create the session.

        If `stores` is None, the connector cannot have its own offsets topic, and only `offsets` is
        used.
        """
        self._spec = spec
        self._offsets = offsets
        self._stores = stores
        self._gate = gate
        self._threads = threads
        self._executor = threads.enter(spec.id.connector)
        self._lock = threading.Lock()
        self._writing = threading.Condition()
        self._writes = 0  # offset writes in progress
        self._closing = ExitStack()
        self._closed = False
        self._store: ConnectorOffsetStore | None = None

    def call(self, request: SourceTaskCall) -> Future[Any]:
        """Process a request and return a future for the result. Never blocks."""
        result: Future[Any] = Future()
        result.set_running_or_notify_cancel()

        def work() -> None:
            try:
                with log_context(self._spec.id.connector, self._spec.id.task):
                    self._process_and_track(request).add_done_callback(partial(pass_on, result))
            except Exception as error:  # noqa: BLE001 - sent to the task
                result.set_exception(error)

        if self._submit(work) is None:
            result.set_exception(ConnectError("the worker is stopping"))
        return result

    def copy(self, message: CopySourceOffsets) -> None:
        """Copy offsets from the connector's own offsets topic to the worker's offsets topic.

        The copy is complete when `ended` returns True.
        """
        with self._writing:
            closed = self._closed
            self._writes += not closed
        if closed:
            log.warning("offsets were stored only in the connector's own topic: the task has ended")
            return

        def work() -> Future[None]:
            with log_context(self._spec.id.connector, self._spec.id.task):
                try:
                    return self._open_store().copy(message.offsets)
                except ConnectError as error:
                    log.warning("offsets were stored only in the connector's own topic: %s", error)
                    return done(None)

        def watch(submitted: Future[Future[None]]) -> None:
            if submitted.cancelled() or submitted.exception() is not None:
                self._write_ended()
            else:
                submitted.result().add_done_callback(lambda _: self._write_ended())

        submitted = self._submit(work)
        if submitted is None:
            self._write_ended()
        else:
            submitted.add_done_callback(watch)

    def close(self) -> None:
        """Release the connector's own offsets topic. May be called repeatedly. Never blocks."""
        with self._writing:
            closed, self._closed = self._closed, True
        if not closed:
            self._submit(self._release)
            self._threads.leave(self._spec.id.connector)

    def ended(self, timeout: float) -> bool:
        """Wait until all writes of the task are complete. Return False on timeout.

        Must be called after `close`.
        """
        with self._writing:
            return self._writing.wait_for(lambda: self._writes == 0, timeout)

    def _release(self) -> None:
        """Release the store.

        Runs on a thread that may block, because it waits for any request that is opening the store.
        """
        with self._lock:
            self._store = None
            closing = self._closing.pop_all()
        closing.close()

    def _submit(self, work: Callable[[], T]) -> Future[T] | None:
        try:
            return self._executor.submit(work)
        except RuntimeError:
            log.debug("dropped a request from a task because the worker is stopping")
            return None

    def _process_and_track(self, request: SourceTaskCall) -> Future[Any]:
        if not isinstance(request, WriteSourceOffsets):
            return self._process(request)
        with self._writing:
            if self._closed:
                raise ConnectError("cannot store offsets: the task has ended")
            self._writes += 1
        try:
            written = self._process(request)
        except BaseException:
            self._write_ended()
            raise
        written.add_done_callback(lambda _: self._write_ended())
        return written

    def _write_ended(self) -> None:
        with self._writing:
            self._writes -= 1
            self._writing.notify_all()

    def _process(self, request: SourceTaskCall) -> Future[Any]:
        if isinstance(request, FenceZombies):
            return self._require_gate().fence_zombie_source_tasks(self._spec.id.connector)
        if isinstance(request, VerifyTask):
            self._require_gate().verify_source_task(self._spec.id, self._spec.start_number).result(
                READ_SECONDS
            )
            return done(self._open_store().topic)
        name = self._spec.id.connector
        if self._stores is None and not isinstance(request, MakeOffsetKeys):
            offsets = self._require_offsets()
            if isinstance(request, ReadSourceOffsets):
                offsets.refresh(READ_SECONDS)
                return done([offsets.get(name, partition) for partition in request.partitions])
            return offsets.set(name, request.offsets)
        store = self._open_store()
        if isinstance(request, ReadSourceOffsets):
            store.refresh(READ_SECONDS)
            return done([store.get(partition) for partition in request.partitions])
        if isinstance(request, MakeOffsetKeys):
            return done(
                [
                    key
                    for key, _ in store.records(
                        [(partition, {}) for partition in request.partitions]
                    )
                ]
            )
        copied = store.set(request.offsets)
        with self._writing:
            self._writes += 1
        # the task does not wait for the copy
        copied.add_done_callback(lambda _: self._write_ended())
        return done(None)

    def _require_gate(self) -> SourceTaskGate:
        if self._gate is None:
            raise ConnectError("this worker does not support exactly-once source tasks")
        return self._gate

    def _require_offsets(self) -> OffsetStore:
        if self._offsets is None:
            raise ConnectError("this worker does not store offsets for source connectors")
        return self._offsets

    def _open_store(self) -> ConnectorOffsetStore:
        """Return the connector's store. The first call opens it while concurrent calls wait."""
        with self._lock:
            if self._store is None:
                if self._closed or self._stores is None:
                    raise ConnectError("this worker does not store offsets for this task")
                opening = self._stores.open(
                    self._spec.id.connector, self._spec.connector_config, READ_SECONDS
                )
                self._store = self._closing.enter_context(opening)
            return self._store
