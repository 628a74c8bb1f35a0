"""`HerderExecutor`: runs requests in order on the herder's thread."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import TypeVar

from connect_py.clock import Clock
from connect_py.futures import pass_on
from connect_py.herder.herder import StagedFuture, UnavailableError
from connect_py.herder.thread.request_queue import RequestQueue

log = logging.getLogger(__name__)

T = TypeVar("T")

# maximum time that a request waits for tasks to stop or be reassigned; the REST timeout is 90 s
SETTLE_SECONDS = 60.0
SETTLE_PAUSE_SECONDS = 0.1
STOPPING_MESSAGE = "Worker is shutting down"


class HerderExecutor:
    """Runs actions on the herder's thread and completes futures with their results. Thread-safe.

    After `stopping` is set, pending and new requests fail with UnavailableError.
    """

    def __init__(self, queue: RequestQueue, clock: Clock) -> None:
        """Create the executor. The herder's thread runs the actions in `queue`."""
        self._queue = queue
        self._clock = clock
        self.stopping = threading.Event()
        self.closed = threading.Event()  # set once the herder's thread runs no more actions

    def submit(self, action: Callable[[], T | Future[T]]) -> Future[T]:
        """Run an action on the herder's thread.

        The returned future completes with the result of the action, or with the result of the
        future that the action returns.
        """
        answer: StagedFuture[T] = StagedFuture()
        self.enqueue(lambda: self.complete(answer, action))
        return answer

    def submit_when(
        self, settled: Callable[[], bool], action: Callable[[], T | Future[T]]
    ) -> Future[T]:
        """Run an action once `settled` returns True or `SETTLE_SECONDS` have passed.

        The action must check the condition again.
        """
        answer: StagedFuture[T] = StagedFuture()
        deadline = self._clock.monotonic() + SETTLE_SECONDS

        def poll() -> None:
            if self.stopping.is_set() or settled() or self._clock.monotonic() >= deadline:
                self.complete(answer, action)
            else:
                self._queue.put(poll, SETTLE_PAUSE_SECONDS)

        self.enqueue(poll)
        return answer

    def enqueue(self, request: Callable[[], None]) -> None:
        """Queue a request, which must call `complete`.

        The request fails immediately if the worker is stopping or the thread has ended.
        """
        if self.stopping.is_set():
            request()
            return
        self._queue.put(request)
        if self.closed.is_set():
            self._fail_waiting()

    def complete(self, answer: StagedFuture[T], action: Callable[[], T | Future[T]]) -> None:
        """Run an action on the herder's thread and complete its future.

        If the worker is stopping, the future fails and the action does not run. In that case, this
        method may be called on any thread.
        """
        if self.stopping.is_set():
            answer.set_exception(UnavailableError(STOPPING_MESSAGE))
            return
        try:
            result = action()
        except Exception as error:  # noqa: BLE001 - set on the caller's future
            answer.set_exception(error)
            return
        if isinstance(result, Future):
            answer.wait_for(result)
            result.add_done_callback(partial(pass_on, answer))
        else:
            answer.set_result(result)

    def close(self) -> None:
        """Fail the pending requests. Called when the herder's thread ends."""
        self.closed.set()
        self._fail_waiting()

    def _fail_waiting(self) -> None:
        """Run the remaining actions in the queue.

        Requests then fail because the worker is stopping.
        """
        for action in self._queue.drain():
            try:
                action()
            except Exception:
                log.exception("unexpected error in a request while stopping the herder")
