"""`HerderThread`: the thread that runs the main loop of a herder."""

from __future__ import annotations

import logging
import threading
from abc import ABC, abstractmethod
from concurrent.futures import Future
from typing import Self

from connect_py.api.errors import ConfigError
from connect_py.futures import done
from connect_py.herder.herder import UnavailableError
from connect_py.herder.thread.herder_executor import STOPPING_MESSAGE, HerderExecutor
from connect_py.herder.thread.request_queue import RequestQueue
from connect_py.kafka.authorization_errors import RefusedError

log = logging.getLogger(__name__)


class Startup:
    """Progress of a herder's startup. The herder's thread changes it; any thread may read it."""

    def __init__(self, state_read: Future[None]) -> None:
        """Create the progress of a new herder. `state_read` completes once the stores are read."""
        self.state_read = state_read
        self.complete = threading.Event()  # changes that are read before this is set are outdated

    @classmethod
    def skipped(cls) -> Self:
        """Return a completed startup for a herder that has no topics to read."""
        startup = cls(done(None))
        startup.complete.set()
        return startup


class HerderLoop(ABC):
    """Main loop of the herder's thread."""

    @abstractmethod
    def run(self) -> None:
        """Process requests and changes until the executor is stopping."""

    @abstractmethod
    def end(self) -> None:
        """Stop the worker and then the stores. Also called after `run` has failed."""


class HerderThread:
    """Calls the `run` and `end` methods of a loop on a dedicated thread."""

    def __init__(
        self,
        loop: HerderLoop,
        executor: HerderExecutor,
        queue: RequestQueue,
        startup: Startup,
        name: str,
    ) -> None:
        """Create the thread without starting it."""
        self._loop = loop
        self._executor = executor
        self._queue = queue
        self._startup = startup
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self.failure: BaseException | None = None  # error that ended the thread

    def start(self) -> None:
        """Start the thread. `failure` is set if an error ends the thread."""
        self._thread.start()

    def stop(self, timeout: float) -> bool:
        """Stop the loop and wait for the thread to end.

        Returns False if this takes longer than `timeout` seconds.
        """
        self._executor.stopping.set()
        self._queue.wake()
        if self._thread.is_alive():
            self._thread.join(timeout)
        return not self._thread.is_alive()

    def wait(self, seconds: float) -> bool:
        """Wait for the thread to end. Return False on timeout."""
        return self._executor.closed.wait(seconds)

    def _run(self) -> None:
        try:
            self._loop.run()
        except Exception as error:
            log.error(
                "herder thread failed: %s",
                error,
                exc_info=not isinstance(error, ConfigError | RefusedError),
            )
            self.failure = error
        finally:
            self._executor.stopping.set()  # also after an error, so later requests fail
            if not self._startup.state_read.done():
                self._startup.state_read.set_exception(UnavailableError(STOPPING_MESSAGE))
            try:
                self._loop.end()
            except Exception as error:
                log.exception("unexpected error while stopping the herder")
                self.failure = self.failure or error
            finally:
                self._executor.close()
