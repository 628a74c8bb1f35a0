"""A Kafka Connect worker, either Java's or connect-py's, in a child process."""

from __future__ import annotations

import socket
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

import httpx

from connect_py.api.errors import ConnectError
from connect_py.api.rest_paths import CONNECTOR_STATUS, CONNECTORS, path
from connect_py.embedded.java_connect import java_connect_command
from connect_py.embedded.started_service import StartedService
from connect_py.process.child_process import ChildProcess

START_SECONDS = 90.0  # timeout until the worker responds
STOP_SECONDS = 30.0
LOG_LINES = 25  # number of log lines shown after a failure
_POLL_SECONDS = 0.1
_ANSWER_SECONDS = 15.0
_HOST = "127.0.0.1"


class ConnectProcess(StartedService):
    """A connect-py worker in a child process.

    After `kill` or `stop`, `launch` starts it again with the same properties and port.
    """

    def __init__(
        self,
        directory: Path,
        name: str,
        group: str,
        bootstrap_servers: str,
        properties: Mapping[str, str] | None = None,
    ) -> None:
        """Write `NAME.properties` into the directory, without starting the worker.

        `properties` override the default settings.
        """
        self.name = name
        self.url = f"http://{_HOST}:{free_port()}"
        self.properties = directory / f"{name}.properties"
        self.log_path = directory / f"{name}.log"
        settings = {**_settings(group, bootstrap_servers, self.url), **(properties or {})}
        self.properties.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        self._child: ChildProcess | None = None

    def command(self) -> Sequence[str | Path]:
        """Return the worker's command, `connect-distributed`."""
        return [Path(sys.executable).parent / "connect-distributed", self.properties]

    def launch(self) -> None:
        """Start the process without waiting. See `wait_until_it_answers`.

        Raises:
            JavaNotFoundError, IvyError, JarLockError: Only for Java's worker. See
                `java_connect_command`.
        """
        self._child = ChildProcess(self.command(), self.log_path)

    def start(self) -> Self:
        """Start the process and wait until it responds."""
        self.launch()
        self.wait_until_it_answers()
        return self

    def wait_until_it_answers(self, interrupted: threading.Event | None = None) -> None:
        """Wait until the REST port serves requests or `interrupted` is set.

        Raises:
            ConnectError: The worker exited or did not respond in time. The message contains the end
                of its log.
        """
        interrupted = interrupted or threading.Event()
        deadline = time.monotonic() + START_SECONDS
        while not interrupted.is_set():
            self.check()
            try:
                if httpx.get(self.url + CONNECTORS, timeout=_ANSWER_SECONDS).status_code == 200:
                    return
            except httpx.TransportError:
                pass  # the REST port is not open yet
            if time.monotonic() > deadline:
                raise ConnectError(
                    f"{self.name} did not respond within {START_SECONDS:g} s:\n{self.log_end()}"
                )
            interrupted.wait(_POLL_SECONDS)

    @property
    def pid(self) -> int:
        """Process ID of the current or last process."""
        assert self._child is not None
        return self._child.pid

    @property
    def ended(self) -> bool:
        """True if the process was started and has exited."""
        return self._child is not None and self._child.status is not None

    def check(self) -> None:
        """Raise an error if the process has exited.

        Raises:
            ConnectError: The process has exited. The message contains the end of its log.
        """
        if self._child is not None and self._child.status is not None:
            raise ConnectError(
                f"{self.name} exited with status {self._child.status}:\n{self.log_end()}"
            )

    def failed_trace(self, connector: str) -> str | None:
        """Return the stack trace of a failed connector or task.

        Return None if there is no failure or if the status is unknown.
        """
        try:
            target = path(CONNECTOR_STATUS, connector=connector)
            status = httpx.get(self.url + target, timeout=_ANSWER_SECONDS).json()
        except (httpx.TransportError, ValueError):  # no response, or not JSON
            return None
        states = [status.get("connector", {}), *status.get("tasks", [])]
        return next(
            (str(state.get("trace")) for state in states if state.get("state") == "FAILED"), None
        )

    def log_end(self) -> str:
        """Return the last lines of the log."""
        if not self.log_path.exists():
            return "no log"
        return "\n".join(self.log_path.read_text(errors="replace").splitlines()[-LOG_LINES:])

    def wait(self, seconds: float) -> bool:
        """Wait up to `seconds` until the process has exited. Return False if it has not."""
        return self._child is None or self._child.wait(seconds)

    def close(self) -> None:
        """Stop the worker cleanly, or kill the process after 30 seconds."""
        if self._child is not None:
            self._child.stop(STOP_SECONDS)


class JavaConnectProcess(ConnectProcess):
    """Java's Kafka Connect worker in a child process, with the plugins in `plugin.path`."""

    def command(self) -> Sequence[str | Path]:
        """Return the worker's command, `ConnectDistributed` with the jars in the lock `connect`."""
        return java_connect_command(self.properties)


def free_port() -> int:
    """Return a port that is currently free on this machine."""
    with socket.socket() as sock:
        sock.bind((_HOST, 0))
        return int(sock.getsockname()[1])


def _settings(group: str, bootstrap_servers: str, url: str) -> Mapping[str, str]:
    json_converter = "org.apache.kafka.connect.json.JsonConverter"
    return {
        "bootstrap.servers": bootstrap_servers,
        "group.id": group,
        "listeners": url,
        "key.converter": json_converter,
        "value.converter": json_converter,
        "offset.flush.interval.ms": "10000",
        **{
            f"{topic}.storage.topic": f"{group}-{topic}" for topic in ("config", "status", "offset")
        },
        **{f"{topic}.storage.replication.factor": "1" for topic in ("config", "status", "offset")},
    }
