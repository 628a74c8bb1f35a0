"""The Spark driver process: an ordinary PySpark program that serves coordinators and commands over a Unix socket.

The worker runs it as a shared service (`connect_py.api.service`). Its JVM ends with it.

Each connection is one user with a session of its own. Requests of one connection are answered one after the other, on
a thread of their own; Spark shares its cores among the threads.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import threading
import time
from collections.abc import Callable
from contextlib import closing, suppress
from multiprocessing.connection import Connection, Listener
from typing import Any, Final

from connect_py.api.errors import ConnectError
from connect_py.api.service import ServiceLogHandler, ServiceProgram
from connectors.iceberg.spark.driver_protocol import Failed, Opened, Request, Succeeded, serve_connections
from connectors.iceberg.spark.errors import CatalogUnavailableError, SparkDiedError, SparkLostError
from connectors.iceberg.spark.lake_session import LakeSession
from connectors.iceberg.spark.spark_runtime import SparkRuntime

log = logging.getLogger(__name__)

JVM_DIED: Final = 3
REPORT_SECONDS: Final = 5.0
_KILL_SECONDS: Final = 10.0  # a statement that ignores its interruption as long as this costs the driver its life
_END_SECONDS: Final = 1.0  # from a connection that broke until the end of the JVM is known
_INTERRUPT_SECONDS: Final = 0.5
_SILENCE_SECONDS: Final = 60.0  # without a report: this process or the JVM was stopped, and the worker ends both


class DriverMetrics:
    """What the driver did so far. Any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._values = {"sessions": 0.0, "requests_total": 0.0, "request_seconds_total": 0.0, "interrupted_total": 0.0}

    def add(self, name: str, value: float = 1.0) -> None:
        with self._lock:
            self._values[name] += value

    def values(self) -> dict[str, float]:
        with self._lock:
            return dict(self._values)


class _ConnectorContext(logging.Filter):
    """Gives log records the connector whose request the thread serves."""

    def __init__(self) -> None:
        super().__init__()
        self.thread = threading.local()

    def filter(self, record: logging.LogRecord) -> bool:
        if not hasattr(record, "connector"):
            record.connector = getattr(self.thread, "user", None)
        return True


_context = _ConnectorContext()


class DriverProgram:
    """Owns the runtime and the listener."""

    def __init__(self, runtime: SparkRuntime, socket: str, secret: str) -> None:
        self._runtime = runtime
        self.metrics = DriverMetrics()
        self._listener = Listener(socket, "AF_UNIX", backlog=64, authkey=secret.encode())

    def serve(self) -> None:
        """Accept connections for ever, each on a thread of its own."""
        serve_connections(self._listener, self._serve_one, "spark-user")

    def _serve_one(self, connection: Connection) -> None:
        self.metrics.add("sessions")
        try:
            with closing(connection), suppress(EOFError, ConnectionError):  # the user is gone
                _User(self._runtime, connection, self.metrics).serve()
        finally:
            self.metrics.add("sessions", -1)


class _User:
    """One connection."""

    def __init__(self, runtime: SparkRuntime, connection: Connection, metrics: DriverMetrics) -> None:
        self._runtime = runtime
        self._connection = connection
        self._metrics = metrics
        self._session: LakeSession | None = None
        self._spark: Any = None
        self._tag = f"connect-py-{id(self):x}"

    def serve(self) -> None:
        opened: Opened = self._connection.recv()
        _context.thread.user = opened.user
        log.info("a Spark session for %s", opened.user, extra={"connector": opened.user})
        while True:
            request: Request = self._connection.recv()
            started = time.monotonic()
            answer = self._answer(opened, request)
            self._metrics.add("requests_total")
            self._metrics.add("request_seconds_total", time.monotonic() - started)
            self._connection.send(answer)

    def _answer(self, opened: Opened, request: Request) -> Succeeded | Failed:
        with _Deadline(self._runtime, request, self._connection, self._interrupt) as deadline:
            try:
                return Succeeded(self._call(opened, request))
            except Exception as error:
                if isinstance(error, SparkDiedError) or not isinstance(error, ConnectError):
                    self._runtime.wait(_END_SECONDS)  # py4j has many words for a JVM that is gone
                if not self._runtime.running:
                    os._exit(JVM_DIED)  # the owner of this process starts another one
                if deadline.passed and not isinstance(error, SparkDiedError):
                    self._metrics.add("interrupted_total")
                    error = CatalogUnavailableError(
                        f"{request.subject}: did not end within {request.deadline_seconds:.0f} s and was interrupted"
                    )
                if not isinstance(error, ConnectError):
                    log.exception("request %s failed", request.method)
                return Failed.of(error)

    def _interrupt(self) -> None:
        """End what runs in the JVM, and what runs on a server for it."""
        with suppress(Exception):  # the JVM may be gone
            self._runtime.spark.sparkContext.cancelJobsWithTag(self._tag)
        if self._session is not None:
            self._session.interrupt()

    def _call(self, opened: Opened, request: Request) -> Any:
        if self._session is None:
            self._spark = self._runtime.new_session(opened.settings)
            self._runtime.activate(self._spark)
            self._spark.sparkContext.addJobTag(self._tag)
            self._spark.sparkContext.setLocalProperty("spark.scheduler.pool", opened.user)
            self._session = LakeSession(self._spark, opened.catalog, opened.engine)
        return getattr(self._session, request.method)(*request.arguments)


class _Deadline:
    """Interrupts what takes longer; kills the JVM if the interruption is ignored."""

    def __init__(
        self, runtime: SparkRuntime, request: Request, connection: Connection, interrupt: Callable[[], None]
    ) -> None:
        self._runtime = runtime
        self._request = request
        self._connection = connection
        self._interrupt = interrupt
        self._done = threading.Event()
        self.passed = False

    def __enter__(self) -> _Deadline:
        threading.Thread(target=self._watch, name="spark-deadline", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()

    def _watch(self) -> None:
        seconds = self._request.deadline_seconds
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            if self._done.wait(min(left, _INTERRUPT_SECONDS)):
                return
            if self._has_hung_up():  # its task died or was stopped: ledger and swap protect what was under way
                self._repeat()
                return
        self.passed = True
        log.error(
            "%s: %s did not end within %.0f s: it is interrupted", self._request.subject, self._request.method, seconds
        )
        # A thread of its own: a JVM that was stopped never answers.
        threading.Thread(target=self._repeat, name="spark-interrupt", daemon=True).start()
        if not self._done.wait(_KILL_SECONDS):
            log.error("%s: the interruption was ignored: the driver ends", self._request.subject)
            self._runtime.kill()
            os._exit(JVM_DIED)

    def _has_hung_up(self) -> bool:
        """Whether the user is gone: nothing else makes the connection readable while an answer is awaited."""
        try:
            return self._connection.poll()
        except OSError:
            return True

    def _repeat(self) -> None:
        """Interrupt again and again: between two statements of a request there is nothing to interrupt."""
        while not self._done.wait(_INTERRUPT_SECONDS):
            self._interrupt()


def main() -> None:
    """See the module."""
    program = ServiceProgram.begin()
    handler = ServiceLogHandler()
    handler.addFilter(_context)
    logging.basicConfig(handlers=[handler], level=logging.INFO)
    for noisy in ("py4j", "DataFrameQueryContextLogger", "SQLQueryContextLogger"):
        logging.getLogger(noisy).setLevel(logging.CRITICAL)
    options, static = json.loads(program.settings["jvm_options"]), json.loads(program.settings["static"])
    try:
        runtime = SparkRuntime(options, static)
    except SparkLostError as error:
        program.failed(str(error))
    except ConnectError as error:
        log.error("the Spark driver does not start: %s", error)
        sys.exit(1)
    ending = threading.Event()
    served = DriverProgram(runtime, program.socket, program.secret)
    threading.Thread(target=served.serve, name="spark-listener", daemon=True).start()
    threading.Thread(target=_end_with_worker, args=(program, runtime, ending), name="spark-owner", daemon=True).start()
    threading.Thread(target=_report, args=(program, served, runtime), name="spark-metrics", daemon=True).start()
    program.ready(_SILENCE_SECONDS)
    context = runtime.spark.sparkContext
    ui = context.uiWebUrl or "off"
    log.info("Spark session: version %s, master %s, UI %s, JVM %d", context.version, context.master, ui, runtime.pid)
    runtime.wait()
    if ending.is_set():
        os._exit(0)
    log.error("the JVM of the Spark driver ended")
    os._exit(JVM_DIED)


def _report(program: ServiceProgram, served: DriverProgram, runtime: SparkRuntime) -> None:
    while True:
        with suppress(Exception):  # the JVM may be gone
            program.report({**served.metrics.values(), "heap_bytes": runtime.heap_bytes()})
        time.sleep(REPORT_SECONDS)


def _end_with_worker(program: ServiceProgram, runtime: SparkRuntime, ending: threading.Event) -> None:
    program.wait_for_end()
    ending.set()
    runtime.stop()
    os._exit(0)


if __name__ == "__main__":
    main()
