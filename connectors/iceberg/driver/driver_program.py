"""The Spark driver process, an ordinary PySpark program.

It serves coordinators and commands over a Unix socket. The worker runs it as a shared service
(`connect_py.api.service`). The driver's JVM exits together with this process.

Each connection serves one client, which has its own session. A dedicated thread processes a
connection's requests in order. Spark shares its cores among these threads. Log lines name the
connector that sent the request.
"""

from __future__ import annotations

import gc
import json
import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, suppress
from multiprocessing import AuthenticationError
from multiprocessing.connection import Connection, Listener
from typing import TYPE_CHECKING, Any, Final

from connect_py.api.errors import ConnectError
from connect_py.api.service import ServiceProgram
from connect_py.process.channel import OUR_ERRORS, Channel
from connectors.iceberg.driver.driver_protocol import OpenSession, Request
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

JVM_DIED: Final = 3  # exit status if the JVM has exited
# environment variable; false disables the driver's warm-up
WARM_UP_VARIABLE: Final = "CONNECT_PY_SPARK_WARM_UP"
REPORT_SECONDS: Final = 5.0
GIVE_UP_SECONDS: Final = 10.0  # from the interruption of a request until the driver exits
_INTERRUPT_SECONDS: Final = 0.5
_END_SECONDS: Final = 1.0  # how long a failed request waits to see whether the JVM exits
# The worker kills this process and the JVM if it receives no report for this long.
_LIVENESS_SECONDS: Final = 60.0
_LONGEST_CHAIN: Final = 10  # maximum number of errors to follow in a chain of causes
_NOISY_LOGGERS: Final = ("py4j", "pyspark", "DataFrameQueryContextLogger", "SQLQueryContextLogger")


class DriverMetrics:
    """Counts the driver's sessions and requests. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        names = ("sessions", "requests_total", "request_seconds_total", "interrupted_total")
        self._values = dict.fromkeys(names, 0.0)

    def add(self, name: str, value: float = 1.0) -> None:
        """Add a value to a metric."""
        with self._lock:
            self._values[name] += value

    def values(self) -> dict[str, float]:
        """Return all metrics."""
        with self._lock:
            return dict(self._values)


class SessionServer:
    """Serves one client connection and its session.

    The client's first call opens the session. A dedicated thread processes the calls in order.
    """

    def __init__(
        self, runtime: SparkRuntime, connection: Connection, metrics: DriverMetrics, warm_up: WarmUp
    ) -> None:
        self._runtime = runtime
        self._channel = Channel(
            connection, name="spark-session", error_modules=(*OUR_ERRORS, "connectors.")
        )
        self._metrics = metrics
        self._warm_up = warm_up
        self._client: OpenSession | None = None
        self._session: LakeSession | None = None
        self._tag = f"connect-py-{id(self):x}"
        self._executor = ThreadPoolExecutor(1, "spark-session")

    def serve(self, log_context: Callable[[str], AbstractContextManager[None]]) -> None:
        """Process calls until the client disconnects.

        `log_context` adds the client's name to log lines.
        """

        def handle(request: Request | OpenSession) -> Future[Any]:
            return self._executor.submit(self._process, request, log_context)

        try:
            while self._channel.receive(handle):
                pass
        finally:
            self._channel.close()
            self._executor.shutdown(wait=False, cancel_futures=True)

    def _process(
        self,
        request: Request | OpenSession,
        log_context: Callable[[str], AbstractContextManager[None]],
    ) -> Any:
        if isinstance(request, OpenSession):
            with self._warm_up.request("open"), log_context(request.user):
                self._client = request
                log.info("opened a Spark session for %s", request.user)
            return None
        client = self._client
        assert client is not None  # set by the first call
        started = time.monotonic()
        try:
            with self._warm_up.request(request.method), log_context(client.user):
                return self._call(client, request)
        finally:
            # Python objects for tables are in reference cycles. Until they are collected, Java
            # retains all snapshots of each table.
            gc.collect()
            self._metrics.add("requests_total")
            self._metrics.add("request_seconds_total", time.monotonic() - started)

    def _call(self, client: OpenSession, request: Request) -> Any:
        with self._watched(request) as is_late:
            try:
                if self._session is None:
                    self._session = self._open(client)
                return getattr(self._session, request.method)(
                    *request.arguments, **request.keywords
                )
            except Exception as error:
                if isinstance(error, SparkDiedError) or not isinstance(error, ConnectError):
                    self._runtime.wait(_END_SECONDS)  # py4j errors often mean that the JVM exited
                if not self._runtime.running:
                    os._exit(JVM_DIED)  # the worker starts another driver
                cause = error.__cause__
                if is_late.is_set() and not isinstance(error, SparkDiedError):
                    self._metrics.add("interrupted_total")
                    error = CatalogUnavailableError(
                        f"{request.subject}: did not finish within "
                        f"{request.deadline_seconds:.0f} s and was interrupted{_last_note(error)}"
                    )
                if not isinstance(error, ConnectError):
                    log.exception("request %s failed", request.method)
                # the client process has no py4j to unpickle the cause
                raise error from (JavaError(str(cause)) if cause is not None else None)

    def _open(self, client: OpenSession) -> LakeSession:
        # local: see _import_slow_modules
        from connectors.iceberg.driver.lake_session import LakeSession

        spark = self._runtime.new_session(client.settings)
        spark.sparkContext.addJobTag(self._tag)
        spark.sparkContext.setLocalProperty("spark.scheduler.pool", client.user)
        return LakeSession(spark, client.catalog, client.engine)

    @contextmanager
    def _watched(self, request: Request) -> Iterator[threading.Event]:
        """Interrupt the request in the `with` block if its client disconnects or time runs out.

        The yielded event is set if the deadline expires. A request whose client disconnected
        requires no cleanup, because the ledger and the atomic metadata swap protect a commit at
        every step.
        """
        ended, is_late = threading.Event(), threading.Event()
        threading.Thread(
            target=self._watch, args=(request, ended, is_late), name="spark-deadline", daemon=True
        ).start()
        try:
            yield is_late
        finally:
            ended.set()

    def _watch(self, request: Request, ended: threading.Event, is_late: threading.Event) -> None:
        subject, seconds = f"{request.subject}: {request.method}", request.deadline_seconds
        deadline = time.monotonic() + seconds
        while (remaining := deadline - time.monotonic()) > 0 and not self._channel.closed:
            if ended.wait(min(remaining, _INTERRUPT_SECONDS)):
                return
        if remaining <= 0:
            is_late.set()
            log.error("%s did not finish within %.0f s, interrupting it", subject, seconds)
        else:
            log.info("%s: the client disconnected, interrupting the request", subject)
        # Use a separate thread, because a py4j call never returns if a signal stopped the JVM.
        threading.Thread(
            target=self._interrupt, args=(ended,), name="spark-interrupt", daemon=True
        ).start()
        if not ended.wait(GIVE_UP_SECONDS):
            log.warning(
                "%s is still running %.0f s after its interruption", subject, GIVE_UP_SECONDS
            )
            if is_late.is_set():
                log.error("exiting the Spark driver")
                self._runtime.kill()
                os._exit(JVM_DIED)

    def _interrupt(self, ended: threading.Event) -> None:
        """Repeatedly cancel this connection's Spark jobs until the request ends.

        One attempt is not enough, because a cancellation between jobs has no effect.
        """
        while not ended.wait(_INTERRUPT_SECONDS):
            with suppress(Exception):  # the JVM may have exited
                self._runtime.spark.sparkContext.cancelJobsWithTag(self._tag)


def _last_note(error: BaseException) -> str:
    """Return the operation that was in progress when an error was raised, or an empty string.

    The last note that was added to the error or to one of its causes names the operation.
    """
    errors: list[BaseException] = []
    current: BaseException | None = error
    while current is not None and len(errors) < _LONGEST_CHAIN:
        errors.append(current)
        cause = current.__cause__
        current = current.__context__ if cause is None or isinstance(cause, JavaError) else cause
    notes = [note for each in errors for note in getattr(each, "__notes__", ())]
    return f" {notes[-1]}" if notes else ""


def main(program: ServiceProgram) -> None:
    """Run the driver until the worker stops it or its JVM exits."""
    for name in _NOISY_LOGGERS:
        logging.getLogger(name).setLevel(logging.CRITICAL)
    threading.Thread(target=_import_slow_modules, name="spark-imports", daemon=True).start()
    options, static = (json.loads(program.settings[name]) for name in ("jvm_options", "static"))
    try:
        runtime = SparkRuntime(options, static)
    except SparkLostError as error:
        program.failed(str(error))
    except ConnectError as error:
        log.error("the Spark driver cannot start: %s", error)
        sys.exit(1)
    from connectors.iceberg.driver.warm_up import WarmUp  # local: see _import_slow_modules

    ending = threading.Event()
    metrics, warm_up = DriverMetrics(), WarmUp(runtime)

    def serve(connection: Connection) -> None:
        metrics.add("sessions")
        try:
            SessionServer(runtime, connection, metrics, warm_up).serve(program.log_context)
        finally:
            metrics.add("sessions", -1)

    # the thread `spark-listener` accepts connections until the process exits
    listener = Listener(program.socket, "AF_UNIX", backlog=64, authkey=program.secret.encode())
    threads: list[tuple[str, Callable[..., None], tuple[Any, ...]]] = [
        ("spark-listener", _accept, (listener, serve)),
        ("spark-owner", _end_with_worker, (program, runtime, ending)),
        ("spark-metrics", _report, (program, metrics, runtime)),
    ]
    for name, function, arguments in threads:
        threading.Thread(target=function, args=arguments, name=name, daemon=True).start()
    program.ready(_LIVENESS_SECONDS)
    context = runtime.spark.sparkContext
    log.info(
        "Spark session: version %s, master %s, UI %s, JVM %d",
        context.version,
        context.master,
        context.uiWebUrl or "off",
        runtime.pid,
    )
    # executors on a cluster cannot read the warm-up's private table
    is_local = static["spark.master"].startswith("local")
    if is_local and os.environ.get(WARM_UP_VARIABLE, "true").lower() != "false":
        warm_up.start()
    runtime.wait()
    if ending.is_set():
        os._exit(0)
    log.error("the Spark driver's JVM exited unexpectedly")
    os._exit(JVM_DIED)


def _import_slow_modules() -> None:
    """Import slow modules while the JVM starts. These imports take two seconds."""
    import pyspark.sql  # noqa: F401 - loads pyspark

    import connectors.iceberg.driver.warm_up  # noqa: F401 - loads LakeSession and pyarrow

    gc.freeze()  # collections after requests need not traverse the imported modules


def _accept(listener: Listener, serve: Callable[[Connection], None]) -> None:
    while True:
        try:
            connection = listener.accept()
        except (AuthenticationError, EOFError, ConnectionError) as error:
            log.warning("connection refused: %s", error)
            continue
        threading.Thread(target=serve, args=(connection,), name="spark-user", daemon=True).start()


def _report(program: ServiceProgram, metrics: DriverMetrics, runtime: SparkRuntime) -> None:
    while True:
        with suppress(Exception):  # the JVM may have exited
            program.report({**metrics.values(), "heap_bytes": runtime.heap_bytes()})
        time.sleep(REPORT_SECONDS)


def _end_with_worker(
    program: ServiceProgram, runtime: SparkRuntime, ending: threading.Event
) -> None:
    program.wait_for_end()
    ending.set()
    logging.disable()  # py4j logs each call that the JVM's exit interrupts
    runtime.stop()
    os._exit(0)
