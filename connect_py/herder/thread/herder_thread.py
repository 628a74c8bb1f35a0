"""`HerderThread`: the thread of a herder, and the requests that run on it in order."""

from __future__ import annotations

import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import TypeVar

from connect_py.api.errors import ConfigError
from connect_py.clock import Clock
from connect_py.futures import pass_on
from connect_py.herder.herder import StagedFuture, UnavailableError
from connect_py.herder.thread.request_queue import RequestQueue
from connect_py.kafka.authorization_errors import RefusedError

log = logging.getLogger(__name__)

T = TypeVar("T")

SETTLE_SECONDS = 60.0  # maximum time that a request waits for tasks to stop or move; REST waits 90
SETTLE_PAUSE_SECONDS = 0.1
STOPPING_MESSAGE = "Worker is shutting down"


class HerderThread(ABC):
    """Runs `_main` and then `_end` of a subclass on one thread."""

    def __init__(self, queue: RequestQueue, clock: Clock, thread_name: str) -> None:
        """Initialize without starting anything."""
        self._queue = queue
        self._clock = clock
        self._state_read: Future[None] = Future()
        self._stopping = threading.Event()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name=thread_name, daemon=True)
        self.failure: BaseException | None = None  # reason why the thread ended unexpectedly

    def start(self) -> None:
        """Start the thread. `started` reports when the worker is ready, and `failure` why it cannot
        be.
        """
        self._thread.start()

    def stop(self, timeout: float) -> bool:
        """Stop everything that runs here, in order. Return False if it takes longer than `timeout`
        seconds.
        """
        self._stopping.set()
        self._queue.wake()
        if self._thread.is_alive():
            self._thread.join(timeout)
        return not self._thread.is_alive()

    def wait(self, seconds: float) -> bool:
        """Wait for the thread to end. Return True if it has ended."""
        return self._ended.wait(seconds)

    def _run(self) -> None:
        try:
            self._main()
        except Exception as error:
            log.error(
                "herder thread failed: %s",
                error,
                exc_info=not isinstance(error, ConfigError | RefusedError),
            )
            self.failure = error
        finally:
            self._stopping.set()  # also after a failure: later requests fail
            if not self._state_read.done():
                self._state_read.set_exception(UnavailableError(STOPPING_MESSAGE))
            try:
                self._end()
            except Exception as error:
                log.exception("unexpected error while stopping the herder")
                self.failure = self.failure or error
            finally:
                self._ended.set()
                self._fail_waiting()

    def _fail_waiting(self) -> None:
        """Run the remaining actions in the queue. Requests then fail because the worker is
        stopping.
        """
        for action in self._queue.drain():
            try:
                action()
            except Exception:
                log.exception("unexpected error in a request while stopping the herder")

    @abstractmethod
    def _main(self) -> None:
        """Run the herder's loop until `_stopping` is set."""

    @abstractmethod
    def _end(self) -> None:
        """Stop everything that runs here, then the stores. Also called after a failure."""

    def _request(self, action: Callable[[], T | Future[T]]) -> Future[T]:
        """Run an action on the herder's thread. Its result, or the result of the future that it
        returns, completes the returned future.
        """
        answer: StagedFuture[T] = StagedFuture()
        self._enqueue(lambda: self._answer(answer, action))
        return answer

    def _settled_request(
        self, settled: Callable[[], bool], action: Callable[[], T | Future[T]]
    ) -> Future[T]:
        """Run an action when `settled` returns True, or after `SETTLE_SECONDS` at the latest; the
        action checks again.
        """
        answer: StagedFuture[T] = StagedFuture()
        until = self._clock.monotonic() + SETTLE_SECONDS

        def poll() -> None:
            if self._stopping.is_set() or settled() or self._clock.monotonic() >= until:
                self._answer(answer, action)
            else:
                self._queue.put(poll, SETTLE_PAUSE_SECONDS)

        self._enqueue(poll)
        return answer

    def _enqueue(self, action: Callable[[], None]) -> None:
        """Queue a request. It fails immediately if the worker is stopping or the thread has
        ended.
        """
        if self._stopping.is_set():
            action()
            return
        self._queue.put(action)
        if self._ended.is_set():
            self._fail_waiting()

    def _answer(self, answer: StagedFuture[T], action: Callable[[], T | Future[T]]) -> None:
        """Run an action on the herder's thread. While the worker is stopping, fail it on any
        thread.
        """
        if self._stopping.is_set():
            answer.set_exception(UnavailableError(STOPPING_MESSAGE))
            return
        try:
            result = action()
        except Exception as error:  # noqa: BLE001 - passed on to the caller
            answer.set_exception(error)
            return
        if isinstance(result, Future):
            answer.awaited = result
            result.add_done_callback(partial(pass_on, answer))
        else:
            answer.set_result(result)
