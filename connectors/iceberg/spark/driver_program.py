"""The Spark driver process: an ordinary PySpark program that serves coordinators and commands over a Unix socket.

Run as `python -m connectors.iceberg.spark.driver_program`. The first line of its standard input says where to listen,
with which secret, and the static settings. When it listens it prints `{"ready": true}`; when it cannot ever start, it
prints `{"failed": "why"}` and exits with 78. It ends, and its JVM with it, at the end of its standard input.

Each connection is one user with a session of its own. Requests of one connection are answered one after the other, on
a thread of their own; Spark shares its cores among the threads.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import threading
from collections.abc import Mapping
from contextlib import closing, suppress
from multiprocessing import AuthenticationError
from multiprocessing.connection import Connection, Listener
from pathlib import Path
from typing import Any, Final

from connect_py.api.errors import ConnectError
from connectors.iceberg.spark.driver_protocol import Failed, Opened, Request, Succeeded
from connectors.iceberg.spark.errors import CatalogUnavailableError, SparkDiedError, SparkLostError
from connectors.iceberg.spark.lake_session import LakeSession
from connectors.iceberg.spark.spark_runtime import SparkRuntime

log = logging.getLogger(__name__)

LASTING_FAILURE: Final = 78  # exit status: starting again will not help
JVM_DIED: Final = 3
_POLL_SECONDS: Final = 0.2
_KILL_SECONDS: Final = 10.0  # a statement that ignores its interruption as long as this costs the driver its life


class DriverProgram:
    """Owns the runtime and the listener."""

    def __init__(self, runtime: SparkRuntime, socket: str, secret: str) -> None:
        self._runtime = runtime
        self._listener = Listener(socket, "AF_UNIX", backlog=64, authkey=bytes.fromhex(secret))

    def serve(self) -> None:
        """Accept connections for ever, each on a thread of its own."""
        while True:
            try:
                connection = self._listener.accept()
            except (AuthenticationError, EOFError, ConnectionError) as error:
                log.warning("a connection was refused: %s", error)
                continue
            threading.Thread(target=self._serve_one, args=(connection,), name="spark-user", daemon=True).start()

    def _serve_one(self, connection: Connection) -> None:
        with closing(connection), suppress(EOFError, ConnectionError):  # the user is gone
            _User(self._runtime, connection).serve()


class _User:
    """One connection."""

    def __init__(self, runtime: SparkRuntime, connection: Connection) -> None:
        self._runtime = runtime
        self._connection = connection
        self._session: LakeSession | None = None
        self._spark: Any = None
        self._tag = f"connect-py-{id(self):x}"

    def serve(self) -> None:
        opened: Opened = self._connection.recv()
        logging.getLogger().info("a session for %s", opened.user)
        while True:
            request: Request = self._connection.recv()
            self._connection.send(self._answer(opened, request))

    def _answer(self, opened: Opened, request: Request) -> Succeeded | Failed:
        with _Deadline(self._runtime, self._tag, request) as deadline:
            try:
                return Succeeded(self._call(opened, request))
            except Exception as error:
                if not self._runtime.running:
                    os._exit(JVM_DIED)  # the owner of this process starts another one
                if deadline.passed and not isinstance(error, SparkDiedError):
                    error = CatalogUnavailableError(
                        f"{request.subject}: did not end within {request.deadline_seconds:.0f} s and was interrupted"
                    )
                if not isinstance(error, ConnectError):
                    log.exception("request %s failed", request.method)
                return Failed.of(error)

    def _call(self, opened: Opened, request: Request) -> Any:
        if self._session is None:
            self._spark = self._runtime.new_session(opened.settings)
            self._runtime.activate(self._spark)
            self._spark.sparkContext.addJobTag(self._tag)
            self._spark.sparkContext.setLocalProperty("spark.scheduler.pool", opened.user)
            self._session = LakeSession(self._spark, opened.catalog, opened.engine)
        return getattr(self._session, request.method)(*request.arguments, **request.options)


class _Deadline:
    """Interrupts what takes longer; kills the JVM if the interruption is ignored."""

    def __init__(self, runtime: SparkRuntime, tag: str, request: Request) -> None:
        self._runtime = runtime
        self._tag = tag
        self._request = request
        self._done = threading.Event()
        self.passed = False

    def __enter__(self) -> _Deadline:
        threading.Thread(target=self._watch, name="spark-deadline", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()

    def _watch(self) -> None:
        seconds = self._request.deadline_seconds
        if self._done.wait(seconds):
            return
        self.passed = True
        log.error(
            "%s: %s did not end within %.0f s: it is interrupted", self._request.subject, self._request.method, seconds
        )
        with suppress(Exception):  # the JVM may be gone
            self._runtime.spark.sparkContext.cancelJobsWithTag(self._tag)
        if not self._done.wait(_KILL_SECONDS):
            log.error("%s: the interruption was ignored: the driver ends", self._request.subject)
            self._runtime.kill()
            os._exit(JVM_DIED)


def main() -> None:
    """See the module."""
    start: Mapping[str, Any] = json.loads(sys.stdin.readline())
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(levelname)s %(name)s %(message)s")
    for noisy in ("py4j", "DataFrameQueryContextLogger", "SQLQueryContextLogger"):
        logging.getLogger(noisy).setLevel(logging.CRITICAL)
    settings = start["settings"]
    log_path = settings.get("log_path")
    try:
        runtime = SparkRuntime(settings["jvm_options"], settings["static"], Path(log_path) if log_path else None)
    except SparkLostError as error:
        print(json.dumps({"failed": str(error)}), flush=True)
        sys.exit(LASTING_FAILURE)
    except ConnectError as error:
        print(json.dumps({"error": str(error)}), flush=True)
        sys.exit(1)
    program = DriverProgram(runtime, start["socket"], start["secret"])
    threading.Thread(target=program.serve, name="spark-listener", daemon=True).start()
    threading.Thread(target=_end_with_input, args=(runtime,), name="spark-owner", daemon=True).start()
    print(json.dumps({"ready": True, "jvm": runtime.pid}), flush=True)
    runtime.wait()
    os._exit(JVM_DIED)


def _end_with_input(runtime: SparkRuntime) -> None:
    """The owner is gone, or wants us to end."""
    while sys.stdin.readline():
        pass
    runtime.stop()
    os._exit(0)


if __name__ == "__main__":
    main()
