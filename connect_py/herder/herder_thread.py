"""`HerderThread`: the one thread of a herder, and the requests that run on it in order."""

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
from connect_py.herder.request_queue import RequestQueue
from connect_py.kafka.authorization_errors import RefusedError

log = logging.getLogger(__name__)

T = TypeVar("T")

SETTLE_SECONDS = 60.0  # how long a request waits for tasks that stop or move; REST waits 90
SETTLE_PAUSE_SECONDS = 0.1
STOPPING_TEXT = "Worker is shutting down"


class HerderThread(ABC):
    """A subclass says what the thread does (`_main`) and how it ends (`_end`)."""

    def __init__(self, queue: RequestQueue, clock: Clock, thread_name: str) -> None:
        """Prepare; nothing runs yet."""
        self._queue = queue
        self._clock = clock
        self._state_read: Future[None] = Future()
        self._stopping = threading.Event()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name=thread_name, daemon=True)
        self.failure: BaseException | None = None  # why the thread ended by itself

    def start(self) -> None:
        """Begin; `started` tells when the worker is ready, `failure` when it cannot be."""
        self._thread.start()

    def stop(self, timeout: float) -> bool:
        """Stop everything that runs here, in order; False when that took longer than `timeout`
        seconds."""
        self._stopping.set()
        self._queue.wake()
        if self._thread.is_alive():
            self._thread.join(timeout)
        return not self._thread.is_alive()

    def wait(self, seconds: float) -> bool:
        """Wait for the herder's end; whether it has ended."""
        return self._ended.wait(seconds)

    def _run(self) -> None:
        try:
            self._main()
        except Exception as error:
            log.error(
                "herder thread ends: %s",
                error,
                exc_info=not isinstance(error, ConfigError | RefusedError),
            )
            self.failure = error
        finally:
            self._stopping.set()  # also after a failure: later requests get an error
            if not self._state_read.done():
                self._state_read.set_exception(UnavailableError(STOPPING_TEXT))
            try:
                self._end()
            except Exception as error:
                log.exception("the herder does not end well")
                self.failure = self.failure or error
            finally:
                self._ended.set()
                self._refuse_waiting()

    def _refuse_waiting(self) -> None:
        """Run the actions that are left in the queue: requests see that the worker stops, and say
        so."""
        for action in self._queue.drain():
            try:
                action()
            except Exception:
                log.exception("a request at the end of the herder failed")

    @abstractmethod
    def _main(self) -> None:
        """Work on the herder's thread until `_stopping` is set."""

    @abstractmethod
    def _end(self) -> None:
        """Stop what runs here and what it is kept in; also after a failure."""

    def _request(self, action: Callable[[], T | Future[T]]) -> Future[T]:
        """Run on the herder's thread; the answer, or the answer's future, ends in the future
        returned."""
        answer: StagedFuture[T] = StagedFuture()
        self._enqueue(lambda: self._answer(answer, action))
        return answer

    def _settled_request(
        self, settled: Callable[[], bool], action: Callable[[], T | Future[T]]
    ) -> Future[T]:
        """The same once `settled` is true, at the latest after `SETTLE_SECONDS`: then the action
        decides by itself."""
        answer: StagedFuture[T] = StagedFuture()
        until = self._clock.monotonic() + SETTLE_SECONDS

        def look() -> None:
            if self._stopping.is_set() or settled() or self._clock.monotonic() >= until:
                self._answer(answer, action)
            else:
                self._queue.put(look, SETTLE_PAUSE_SECONDS)

        self._enqueue(look)
        return answer

    def _enqueue(self, action: Callable[[], None]) -> None:
        """Have a request worked on, or refused when the worker stops, or the herder's thread has
        ended meanwhile."""
        if self._stopping.is_set():
            action()
            return
        self._queue.put(action)
        if self._ended.is_set():
            self._refuse_waiting()

    def _answer(self, answer: StagedFuture[T], action: Callable[[], T | Future[T]]) -> None:
        """On the herder's thread: do what was asked. On any thread once the worker stops: refuse
        it."""
        if self._stopping.is_set():
            answer.set_exception(UnavailableError(STOPPING_TEXT))
            return
        try:
            result = action()
        except Exception as error:  # noqa: BLE001 - the caller gets it, and decides
            answer.set_exception(error)
            return
        if isinstance(result, Future):
            answer.part = result
            result.add_done_callback(partial(pass_on, answer))
        else:
            answer.set_result(result)
