"""`SparkDriver`: a driver process of one's own, and the connection to it."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing.connection import Client, Connection
from pathlib import Path
from typing import Any, Final

from connectors.iceberg.spark.commit_engine import EngineSettings
from connectors.iceberg.spark.driver_protocol import Failed, Opened, Request
from connectors.iceberg.spark.errors import CatalogUnavailableError, SparkDiedError, SparkLostError
from connectors.iceberg.spark.gateway import LAUNCHER
from connectors.iceberg.spark.spark_config import SparkConfig

log = logging.getLogger(__name__)

_MODULE: Final = "connectors.iceberg.spark.driver_program"
_START_SECONDS: Final = 120.0
_GRACE_SECONDS: Final = 5.0
_KILL_SECONDS: Final = 10.0
_EXTRA_SECONDS: Final = 15.0  # that the driver has to interrupt a statement, before it is killed itself
_LAST_LINES: Final = 25


@dataclass(frozen=True, slots=True)
class DriverAddress:
    """Where a driver process listens."""

    socket: str
    secret: str


class DriverProcess:
    """A child process that runs `driver_program`. Made and stopped by one owner; `running` and `kill` from any thread.

    Linux kills the child when the thread that forked it ends, hence the keeper thread. Elsewhere the child notices the
    end of its standard input.
    """

    def __init__(self, config: SparkConfig, log_path: Path | None = None) -> None:
        """Start the process and return when it listens.

        Raises:
            CatalogUnavailableError: It did not start; its last lines are in the message.
            SparkLostError: Java or a jar is missing.
        """
        self._folder = Path(tempfile.mkdtemp(prefix="connect-py-driver-"))
        self._log_path = log_path or self._folder / "driver.log"
        self.address = DriverAddress(str(self._folder / "socket"), secrets.token_hex(32))
        self.jvm: int | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._spawned, self._exited = threading.Event(), threading.Event()
        self._stop_lock = threading.Lock()
        start = {
            "socket": self.address.socket,
            "secret": self.address.secret,
            "settings": {
                "jvm_options": config.jvm_options(),
                "static": config.static_settings(),
                "log_path": str(self._log_path),
            },
        }
        self._keeper = threading.Thread(target=self._keep, args=(start,), name="spark-driver", daemon=True)
        self._keeper.start()
        try:
            self._spawned.wait()
            self._wait_until_ready()
        except BaseException:
            self.kill()
            raise

    @property
    def running(self) -> bool:
        return self._process is not None and not self._exited.is_set()

    @property
    def pid(self) -> int:
        assert self._process is not None  # the constructor waited for it
        return self._process.pid

    def stop(self) -> None:
        """Ask the process to end, wait, and kill it after the grace."""
        process = self._process
        if process is not None and process.stdin is not None:
            with contextlib.suppress(OSError):  # it is gone already
                process.stdin.close()
            self._exited.wait(_GRACE_SECONDS)
        self.kill()

    def kill(self) -> None:
        """End process and JVM now, and remove the temporary files. Does nothing the second time."""
        with self._stop_lock:
            if self._process is not None and self.running:
                self._process.kill()  # the JVM dies with it
                self._exited.wait(_KILL_SECONDS)
            self._keeper.join(_KILL_SECONDS)
            shutil.rmtree(self._folder, ignore_errors=True)

    def _keep(self, start: dict[str, Any]) -> None:
        launcher = [sys.executable, "-I", "-S", "-c", LAUNCHER, str(os.getpid())]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        try:
            with self._log_path.open("ab") as log_file, (self._folder / "stdout").open("xb") as said:
                self._process = subprocess.Popen(
                    [*launcher, sys.executable, "-m", _MODULE],
                    stdin=subprocess.PIPE,  # open as long as we live: the process ends at its end
                    stdout=said,
                    stderr=log_file,
                    env=environment,
                    start_new_session=True,  # Ctrl-C in a terminal is ours to handle
                )
            assert self._process.stdin is not None
            with contextlib.suppress(BrokenPipeError):
                self._process.stdin.write(json.dumps(start).encode() + b"\n")
                self._process.stdin.flush()
        finally:
            self._spawned.set()
            if self._process is not None:
                self._process.wait()
                with contextlib.suppress(OSError):
                    if self._process.stdin is not None:
                        self._process.stdin.close()
            self._exited.set()

    def _wait_until_ready(self) -> None:
        deadline = time.monotonic() + _START_SECONDS
        said = self._folder / "stdout"
        while True:
            for line in said.read_text().splitlines() if said.exists() else ():
                answer = json.loads(line)
                if "failed" in answer:
                    raise SparkLostError(answer["failed"])
                if "error" in answer:
                    raise CatalogUnavailableError(answer["error"])
                if answer.get("ready"):
                    self.jvm = answer["jvm"]
                    return
            if self._exited.wait(0.02):
                raise CatalogUnavailableError(f"the Spark driver ended while it started:\n{self._last_lines()}")
            if time.monotonic() > deadline:
                raise CatalogUnavailableError(
                    f"timed out after {_START_SECONDS:.0f} s while the Spark driver started:\n{self._last_lines()}"
                )

    def _last_lines(self) -> str:
        try:
            return "\n".join(self._log_path.read_text(errors="replace").strip().splitlines()[-_LAST_LINES:])
        except OSError as error:
            return f"(no log: {error})"


class SparkDriver:
    """A driver process of its owner's, with one session in it. One thread calls; `alive` and `kill` from any thread."""

    def __init__(
        self,
        config: SparkConfig,
        engine: EngineSettings | None = None,
        user: str = "connect-py",
        log_path: Path | None = None,
    ) -> None:
        """Start nothing yet.

        Args:
            config: What driver and session are made from.
            engine: What the configuration says of commits.
            user: The connector, for logs.
            log_path: Where the output of process and JVM goes.
        """
        self.config = config
        self._engine = engine or EngineSettings()
        self._user = user
        self._log_path = log_path
        self._process: DriverProcess | None = None
        self._connection: Connection | None = None
        self._deadline_seconds = 120.0

    def start(self) -> None:
        """Start the process and connect.

        Raises:
            CatalogUnavailableError: It did not start.
            SparkLostError: Java or a jar is missing.
        """
        if self._process is not None:
            raise RuntimeError("the driver was started before")
        self._process = DriverProcess(self.config, self._log_path)
        try:
            address = self._process.address
            connection = Client(address.socket, "AF_UNIX", authkey=bytes.fromhex(address.secret))
            connection.send(Opened(self._user, self.config.catalog, self.config.session_settings(), self._engine))
            self._connection = connection
        except (OSError, EOFError) as error:
            self.kill()
            raise CatalogUnavailableError(f"the Spark driver cannot be reached: {error}") from error

    def alive(self) -> bool:
        """Whether the process exists. One that hangs does; see `deadline`."""
        process = self._process
        return process is not None and process.running

    @property
    def pid(self) -> int | None:
        """Process id of the driver process."""
        return self._process.pid if self._process is not None else None

    @property
    def jvm(self) -> int | None:
        """Process id of its JVM."""
        return self._process.jvm if self._process is not None else None

    def stop(self) -> None:
        """End the process: ask first, then for certain. Does nothing when there is none."""
        process, self._process = self._process, None
        self._disconnect()
        if process is not None:
            process.stop()

    def kill(self) -> None:
        """End the process at once; a call under way raises a `SparkDiedError`."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
        self._disconnect()

    def restart(self) -> None:
        """Replace the process, dead or not."""
        self.kill()
        self.start()

    def __enter__(self) -> SparkDriver:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @contextlib.contextmanager
    def deadline(self, seconds: float) -> Iterator[None]:
        """Calls inside are interrupted after this many seconds; a driver that does not answer then is killed."""
        before, self._deadline_seconds = self._deadline_seconds, seconds
        try:
            yield
        finally:
            self._deadline_seconds = before

    def call(self, subject: str, method: str, *arguments: Any, **options: Any) -> Any:
        """Call a method of the driver's `LakeSession`. `subject` is mostly the table, for messages.

        Raises:
            SparkDiedError: The driver is gone; `restart` makes a new one.
            ConnectError: What the method raised.
        """
        connection = self._connection
        if connection is None or not self.alive():
            raise SparkDiedError("Spark is not running")
        try:
            connection.send(Request(subject, method, arguments, options, self._deadline_seconds))
            if not connection.poll(self._deadline_seconds + _EXTRA_SECONDS):
                log.error("Spark did not answer within %.0f s: its driver is killed", self._deadline_seconds)
                self.kill()
                raise SparkDiedError(f"{subject}: the Spark driver did not answer and was killed")
            answer = connection.recv()
        except (OSError, EOFError) as error:
            self.kill()
            raise SparkDiedError(f"{subject}: the Spark driver is gone") from error
        if isinstance(answer, Failed):
            answer.reraise()
        return answer.value

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(OSError):
                connection.close()
