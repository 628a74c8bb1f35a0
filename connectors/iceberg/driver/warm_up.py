"""`WarmUp`: commits on a private table while the driver waits. They speed up the first commit of a
connector.

A JVM is slow at first: it loads classes, and it interprets them. The warm-up gives way to
everything else. It starts a step only if no request is running and none has run for a while, and it
ends with the first commit of a connector. A request never waits for it: it only shares the
processor with the step that is running.

No operating system priority is lowered. The threads that Spark and Iceberg create during a step
would inherit it, and commits of connectors use the same threads.
"""

from __future__ import annotations

import logging
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from connectors.iceberg.driver.lake_session import LakeSession
from connectors.iceberg.driver.spark_runtime import SparkRuntime
from connectors.iceberg.driver.training import training_config, training_steps
from connectors.iceberg.protocol.commit_request import EngineSettings
from connectors.iceberg.protocol.faults import no_fault_points

log = logging.getLogger(__name__)

IDLE_SECONDS: Final = 5.0  # without a request, before a step starts
# the same before anything has connected: a task that waits connects at once
FIRST_IDLE_SECONDS: Final = 0.5
COMMIT: Final = "commit"  # the request that ends the warm-up
# of the format; tables are created with 2 unless the connector asks for 3
_VERSIONS: Final = (2, 3)
_POOL: Final = "warm-up"  # of Spark's scheduler


class WarmUp:
    """Runs once, on its own thread. All methods may be called from any thread."""

    def __init__(self, runtime: SparkRuntime, clock: Callable[[], float] = time.monotonic) -> None:
        self._runtime = runtime
        self._clock = clock
        self._changed = threading.Condition()
        self._requests = 0  # running now
        # the next step may start then, if no request is running
        self._idle_at = clock() + FIRST_IDLE_SECONDS
        self._over = False
        self._thread = threading.Thread(target=self._run, name="spark-warm-up", daemon=True)

    def start(self) -> None:
        """Start the thread and return."""
        self._thread.start()

    def join(self, seconds: float) -> bool:
        """Wait until the warm-up has ended, at most this long. Return True if it has."""
        self._thread.join(seconds)
        return not self._thread.is_alive()

    @contextmanager
    def request(self, method: str) -> Iterator[None]:
        """Let no step start while the block runs, nor shortly after."""
        with self._changed:
            self._requests += 1
            self._over = self._over or method == COMMIT
            self._changed.notify_all()
        try:
            yield
        finally:
            with self._changed:
                self._requests -= 1
                self._idle_at = self._clock() + IDLE_SECONDS
                self._changed.notify_all()

    def _may_continue(self) -> bool:
        """Wait until the driver is idle. Return False if the warm-up is over."""
        with self._changed:
            while not self._over:
                seconds = self._idle_at - self._clock()
                if self._requests == 0 and seconds <= 0:
                    return True
                self._changed.wait(None if self._requests else seconds)
            return False

    def _run(self) -> None:
        if not self._may_continue():
            return
        started, steps = self._clock(), 0
        # the driver removes its scratch folder even if it is killed
        folder = self._runtime.scratch / "warm-up"
        folder.mkdir()
        try:
            with no_fault_points():
                for _ in self._steps(folder):
                    steps += 1
                    if not self._may_continue():
                        break
        except Exception as error:  # noqa: BLE001 - whatever it is, connectors do not need the warm-up
            if self._runtime.running:  # else it ended with the driver
                log.warning(
                    "warm-up failed after %d steps, the first commits are slower: %s", steps, error
                )
        else:
            log.info("warm-up ended after %d steps and %.1f s", steps, self._clock() - started)
        finally:
            shutil.rmtree(folder, ignore_errors=True)  # the scratch folder may be gone already

    def _steps(self, folder: Path) -> Iterator[None]:
        config = training_config(folder)
        session = self._runtime.new_session(config.session_settings())
        session.sparkContext.setLocalProperty("spark.scheduler.pool", _POOL)
        lake = LakeSession(session, config.catalog, EngineSettings())
        for version in _VERSIONS:
            yield from training_steps(lake, f"t{version}", version)
