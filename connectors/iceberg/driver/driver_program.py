"""The Spark driver process: an ordinary PySpark program that serves coordinators and commands over
a Unix socket.

The worker runs it as a shared service (`connect_py.api.service`). Its JVM ends with it.

Each connection is one user with its own session. A dedicated thread answers the requests of a
connection in order; Spark shares its cores among the threads. Log lines name the connector that a
thread works for.
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
from multiprocessing import AuthenticationError
from multiprocessing.connection import Connection, Listener
from typing import TYPE_CHECKING, Any, Final

from connect_py.api.errors import ConnectError
from connect_py.api.service import ServiceLogHandler, ServiceProgram
from connectors.iceberg.driver.driver_protocol import Failed, Opened, Request
from connectors.iceberg.driver.request_watch import RequestWatch
from connectors.iceberg.driver.spark_runtime import SparkRuntime
from connectors.iceberg.errors import (
    CatalogUnavailableError,
    JavaError,
    SparkDiedError,
    SparkLostError,
)

if TYPE_CHECKING:
    from connectors.iceberg.driver.lake_session import LakeSession
    from connectors.iceberg.driver.warm_up import WarmUp

log = logging.getLogger(__name__)

JVM_DIED: Final = 3
# false: the driver does nothing until it is asked
WARM_UP_VARIABLE: Final = "CONNECT_PY_SPARK_WARM_UP"
REPORT_SECONDS: Final = 5.0
_END_SECONDS: Final = 1.0  # from a connection that broke until the end of the JVM is known
# without a report: this process or the JVM was stopped, and the worker ends both
_SILENCE_SECONDS: Final = 60.0
_LONGEST_CHAIN: Final = 10  # of errors that caused each other
_NOISY_LOGGERS: Final = ("py4j", "pyspark", "DataFrameQueryContextLogger", "SQLQueryContextLogger")
_thread: Final = threading.local()  # `connector`: the one that the thread works for


class DriverMetrics:
    """What the driver did so far. Any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._values = {
            "sessions": 0.0,
            "requests_total": 0.0,
            "request_seconds_total": 0.0,
            "interrupted_total": 0.0,
        }

    def add(self, name: str, value: float = 1.0) -> None:
        with self._lock:
            self._values[name] += value

    def values(self) -> dict[str, float]:
        with self._lock:
            return dict(self._values)


class _User:
    """One connection."""

    def __init__(
        self, runtime: SparkRuntime, connection: Connection, metrics: DriverMetrics, warm_up: WarmUp
    ) -> None:
        self._runtime = runtime
        self._connection = connection
        self._metrics = metrics
        self._warm_up = warm_up
        self._session: LakeSession | None = None
        self._spark: Any = None
        self._tag = f"connect-py-{id(self):x}"

    def serve(self) -> None:
        with self._warm_up.request("open"):
            opened: Opened = self._connection.recv()
        _thread.connector = opened.user
        log.info("a Spark session for %s", opened.user, extra={"connector": opened.user})
        while True:
            request: Request = self._connection.recv()
            started = time.monotonic()
            with self._warm_up.request(request.method):
                answer = self._answer(opened, request)
            self._metrics.add("requests_total")
            self._metrics.add("request_seconds_total", time.monotonic() - started)
            self._connection.send(answer)

    def _answer(self, opened: Opened, request: Request) -> Any:
        subject, seconds = f"{request.subject}: {request.method}", request.deadline_seconds
        with RequestWatch(
            subject, self._connection, self._interrupt, lambda: self._kill(watch), seconds
        ) as watch:
            try:
                return self._call(opened, request)
            except Exception as error:
                if isinstance(error, SparkDiedError) or not isinstance(error, ConnectError):
                    self._runtime.wait(_END_SECONDS)  # py4j has many words for a JVM that is gone
                if not self._runtime.running:
                    os._exit(JVM_DIED)  # the owner of this process starts another one
                if watch.late and not isinstance(error, SparkDiedError):
                    self._metrics.add("interrupted_total")
                    error = CatalogUnavailableError(
                        f"{request.subject}: did not end within {seconds:.0f} s and was "
                        f"interrupted{_noted(error)}"
                    )
                if not isinstance(error, ConnectError):
                    log.exception("request %s failed", request.method)
                return Failed.of(error)

    def _interrupt(self) -> None:
        """Cancel the Spark jobs of this connection."""
        with suppress(Exception):  # the JVM may be gone
            self._runtime.spark.sparkContext.cancelJobsWithTag(self._tag)

    def _kill(self, watch: RequestWatch) -> None:
        """End the driver, unless the user disconnected."""
        if watch.late:
            log.error("the driver ends")
            self._runtime.kill()
            os._exit(JVM_DIED)

    def _call(self, opened: Opened, request: Request) -> Any:
        if self._session is None:
            # see _import_slow_modules
            from connectors.iceberg.driver.lake_session import (
                LakeSession,
            )

            self._spark = self._runtime.new_session(opened.settings)
            self._spark.sparkContext.addJobTag(self._tag)
            self._spark.sparkContext.setLocalProperty("spark.scheduler.pool", opened.user)
            self._session = LakeSession(self._spark, opened.catalog, opened.engine)
        return getattr(self._session, request.method)(*request.arguments, **request.named)


def _noted(error: BaseException) -> str:
    """What was under way when an error was raised, as a note says."""
    causes: list[BaseException] = []
    at: BaseException | None = error
    while at is not None and len(causes) < _LONGEST_CHAIN:
        causes.append(at)
        at = (
            at.__context__
            if at.__cause__ is None or isinstance(at.__cause__, JavaError)
            else at.__cause__
        )
    notes = [note for each in causes for note in getattr(each, "__notes__", ())]
    return f" {notes[-1]}" if notes else ""


def main() -> None:
    """See the module."""
    program = ServiceProgram.begin()
    _configure_logging()
    threading.Thread(target=_import_slow_modules, name="spark-imports", daemon=True).start()
    options, static = (
        json.loads(program.settings["jvm_options"]),
        json.loads(program.settings["static"]),
    )
    try:
        runtime = SparkRuntime(options, static)
    except SparkLostError as error:
        program.failed(str(error))
    except ConnectError as error:
        log.error("the Spark driver does not start: %s", error)
        sys.exit(1)
    from connectors.iceberg.driver.warm_up import WarmUp  # see _import_slow_modules

    ending = threading.Event()
    metrics, warm_up = DriverMetrics(), WarmUp(runtime)

    def serve_one(connection: Connection) -> None:
        metrics.add("sessions")
        try:
            _User(runtime, connection, metrics, warm_up).serve()
        finally:
            metrics.add("sessions", -1)

    _listen(program, serve_one)
    threading.Thread(
        target=_end_with_worker, args=(program, runtime, ending), name="spark-owner", daemon=True
    ).start()
    threading.Thread(
        target=_report, args=(program, metrics, runtime), name="spark-metrics", daemon=True
    ).start()
    program.ready(_SILENCE_SECONDS)
    context = runtime.spark.sparkContext
    ui = context.uiWebUrl or "off"
    log.info(
        "Spark session: version %s, master %s, UI %s, JVM %d",
        context.version,
        context.master,
        ui,
        runtime.pid,
    )
    # executors of a cluster cannot read the private table
    is_local = static["spark.master"].startswith("local")
    if is_local and os.environ.get(WARM_UP_VARIABLE, "true").lower() != "false":
        warm_up.start()
    runtime.wait()
    if ending.is_set():
        os._exit(0)
    log.error("the JVM of the Spark driver ended")
    os._exit(JVM_DIED)


def _import_slow_modules() -> None:
    """Import modules, which takes two seconds, while Java starts in its own process."""
    import pyspark.sql  # noqa: F401 - loaded while the JVM starts

    import connectors.iceberg.driver.warm_up  # noqa: F401 - and with it LakeSession and pyarrow


def _configure_logging() -> None:
    handler = ServiceLogHandler()
    handler.addFilter(_add_connector)
    logging.basicConfig(handlers=[handler], level=logging.INFO)
    for name in _NOISY_LOGGERS:
        logging.getLogger(name).setLevel(logging.CRITICAL)


def _add_connector(record: logging.LogRecord) -> bool:
    if not hasattr(record, "connector"):
        record.connector = getattr(_thread, "connector", None)
    return True


def _listen(program: ServiceProgram, serve_one: Callable[[Connection], None]) -> None:
    """Open the socket and return; a thread accepts connections until the process ends."""
    listener = Listener(program.socket, "AF_UNIX", backlog=64, authkey=program.secret.encode())
    threading.Thread(
        target=_accept, args=(listener, serve_one), name="spark-listener", daemon=True
    ).start()


def _accept(listener: Listener, serve_one: Callable[[Connection], None]) -> None:
    while True:
        try:
            connection = listener.accept()
        except (AuthenticationError, EOFError, ConnectionError) as error:
            log.warning("connection refused: %s", error)
            continue
        threading.Thread(
            target=_serve, args=(connection, serve_one), name="spark-user", daemon=True
        ).start()


def _serve(connection: Connection, serve_one: Callable[[Connection], None]) -> None:
    with closing(connection), suppress(EOFError, ConnectionError):  # the user disconnected
        serve_one(connection)


def _report(program: ServiceProgram, metrics: DriverMetrics, runtime: SparkRuntime) -> None:
    while True:
        with suppress(Exception):  # the JVM may be gone
            program.report({**metrics.values(), "heap_bytes": runtime.heap_bytes()})
        time.sleep(REPORT_SECONDS)


def _end_with_worker(
    program: ServiceProgram, runtime: SparkRuntime, ending: threading.Event
) -> None:
    program.wait_for_end()
    ending.set()
    logging.disable()  # py4j logs each call that the end of the JVM cuts short
    runtime.stop()
    os._exit(0)


if __name__ == "__main__":
    main()
