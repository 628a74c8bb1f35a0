"""An Apache Kafka broker for tests and local use: a single KRaft node on loopback ports."""

from __future__ import annotations

import base64
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from connect_py.api.errors import ConnectError
from connect_py.embedded.class_data_archive import ClassDataArchive
from connect_py.embedded.jar_lock import JarLock
from connect_py.embedded.java_runtime import JavaRuntime, find_java
from connect_py.embedded.started_service import StartedService
from connect_py.process.child_process import ChildProcess
from connect_py.process.scratch_folder import scratch_folder

HOST = "127.0.0.1"
_PORT_ATTEMPTS = 3  # another process may take a free port before the broker does
_POLL_SECONDS = 0.05
_FORMAT_SECONDS = 60.0
_STOP_SECONDS = 15.0
_LINES_SHOWN = 25
_JVM_OPTIONS = (
    "-Xms256m",
    "-Xmx512m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-Djava.awt.headless=true",
)
_LOGGING = """\
<?xml version="1.0" encoding="UTF-8"?>
<Configuration status="ERROR" shutdownHook="disable">
  <Appenders>
    <Console name="out"><PatternLayout pattern="%d{ISO8601} %p %m (%c)%n"/></Console>
  </Appenders>
  <Loggers>
    <Logger name="state.change.logger" level="WARN"/>
    <Logger name="org.apache.kafka.common.config.AbstractConfig" level="WARN"/>
    <Root level="INFO"><AppenderRef ref="out"/></Root>
  </Loggers>
</Configuration>
"""


class BrokerError(ConnectError):
    """The broker failed to start or exited unexpectedly.

    The message contains the end of its log.
    """


class KafkaBroker(StartedService):
    """A single node that is both broker and controller.

        with KafkaBroker() as broker:
            AdminClient({"bootstrap.servers": broker.bootstrap_servers})

    The kernel kills the JVM when this process exits, unless `detached` is set. `stop`, `kill`, and
    `start` may be called in any order, but only on one thread. Ports and data remain the same until
    `close`.
    """

    def __init__(
        self,
        directory: Path | None = None,
        *,
        port: int = 0,
        auto_create_topics: bool = False,
        properties: Mapping[str, str] | None = None,
        java_options: Sequence[str] = (),
        detached: bool = False,
        start_seconds: float = 90.0,
    ) -> None:
        """Create the object without starting the broker.

        Args:
            directory: Folder for the data and the log. The default is a temporary folder, which
                `close` removes.
            port: Client port on loopback. 0 selects a free port at the first start.
            auto_create_topics: Create topics automatically when clients use them.
            properties: Broker settings that override the defaults of this class.
            java_options: JVM options that override the defaults of this class.
            detached: Let the broker outlive this process. The caller stops it through `pid`.
            start_seconds: Startup timeout in seconds.
        """
        self._temporary = directory is None
        if directory is None:
            name = "connect-py-kafka-"
            directory = (
                Path(tempfile.mkdtemp(prefix=f"detached-{name}"))
                if detached
                else scratch_folder(name)
            )
        self.directory = directory
        self.directory.mkdir(parents=True, exist_ok=True)
        self._chosen_port = port
        self._port = port
        self._controller_port = 0
        self._auto_create_topics = auto_create_topics
        self._extra = dict(properties or {})
        self._java_options = tuple(java_options)
        self._detached = detached
        self._start_seconds = start_seconds
        self._child: ChildProcess | None = None
        self._log_start = 0  # file position of the first log line of the latest start

    @property
    def bootstrap_servers(self) -> str:
        """`127.0.0.1:port`, available after the first start and constant from then on."""
        if self._port == 0:
            raise BrokerError("the broker has no port before its first start")
        return f"{HOST}:{self._port}"

    @property
    def cluster_id(self) -> str:
        """The cluster ID of the data folder, constant after the first start."""
        match = re.search(r"^cluster\.id=(.+)$", self._identity_file.read_text(), re.MULTILINE)
        if match is None:
            raise BrokerError(f"{self._identity_file} does not contain a cluster ID")
        return match[1].strip()

    @property
    def _identity_file(self) -> Path:
        return self.directory / "data" / "meta.properties"

    @property
    def pid(self) -> int:
        """Process ID of the JVM, available after a start."""
        if self._child is None:
            raise BrokerError("the broker has not been started")
        return self._child.pid

    @property
    def running(self) -> bool:
        """True if the JVM is running, even if paused."""
        return self._child is not None and self._child.status is None

    @property
    def log_path(self) -> Path:
        """Path of the broker's log."""
        return self.directory / "broker.log"

    def start(self) -> Self:
        """Start the broker and return when it responds to an admin request.

        The first start formats the data folder.

        Raises:
            BrokerError: The broker exited or did not respond in time.
            JavaNotFoundError, IvyError, JarLockError: See `find_java` and `JarLock.resolve`.
        """
        if self.running:
            return self
        java = find_java()
        jars = JarLock.shipped("broker").resolve()
        first = self._controller_port == 0
        for attempts_left in reversed(range(_PORT_ATTEMPTS if first else 1)):
            if first:
                self._port, self._controller_port = _free_ports(self._chosen_port)
            self._write_settings()
            self._format(java, jars)
            self._log_start = self.log_path.stat().st_size if self.log_path.exists() else 0
            self._child = ChildProcess(
                self._command(
                    java,
                    jars,
                    self._java_options,
                    "kafka.Kafka",
                    self.directory / "server.properties",
                ),
                self.log_path,
                detached=self._detached,
            )
            try:
                self._wait_until_ready()
            except BaseException:
                self._child.kill()
                if (
                    attempts_left
                    and "Address already in use" in self._log_excerpt()
                    and self._chosen_port == 0
                ):
                    continue
                if first:
                    self._controller_port = 0
                raise
            return self
        raise AssertionError("the last attempt returns or raises")

    def stop(self) -> None:
        """Shut down the broker cleanly, or kill it after 15 seconds."""
        if self._child is not None:
            self._child.signal(signal.SIGCONT)  # a paused process would not handle SIGTERM
            self._child.stop(_STOP_SECONDS)

    def kill(self) -> None:
        """Kill the JVM, as in a power failure (except that the page cache survives)."""
        if self._child is not None:
            self._child.kill()

    def pause(self) -> None:
        """Freeze the JVM. Connections remain open, but the broker does not respond."""
        self._signal_running(signal.SIGSTOP)

    def resume(self) -> None:
        """Resume a frozen JVM."""
        self._signal_running(signal.SIGCONT)

    def restart(self) -> None:
        """Stop and start the broker with the same ports and data."""
        self.stop()
        self.start()

    def close(self) -> None:
        """Stop the broker. A temporary broker is killed, because its folder is removed."""
        if self._temporary:
            self.kill()
            shutil.rmtree(self.directory, ignore_errors=True)
        else:
            self.stop()

    def _signal_running(self, number: signal.Signals) -> None:
        if self._child is None or not self.running:
            raise BrokerError("the broker is not running")
        self._child.signal(number)

    def _settings(self) -> dict[str, str]:
        return {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@{HOST}:{self._controller_port}",
            "controller.listener.names": "CONTROLLER",
            "listeners": f"PLAINTEXT://{HOST}:{self._port},CONTROLLER://{HOST}:{self._controller_port}",
            "advertised.listeners": f"PLAINTEXT://{HOST}:{self._port}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "inter.broker.listener.name": "PLAINTEXT",
            "log.dirs": str(self.directory / "data"),
            "auto.create.topics.enable": str(self._auto_create_topics).lower(),
            # Change events have old timestamps. With the default retention, they would be deleted.
            "log.retention.ms": "-1",
            "group.initial.rebalance.delay.ms": "0",
            "group.min.session.timeout.ms": "1000",
            # After a kill, the controller registers the new broker only after the old session has
            # expired.
            "broker.session.timeout.ms": "4500",
            "broker.heartbeat.interval.ms": "1000",
            # the default of 500 ms benefits followers, which do not exist here
            "metadata.max.idle.interval.ms": "60000",
            "offsets.topic.replication.factor": "1",
            "offsets.topic.num.partitions": "4",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "transaction.state.log.num.partitions": "4",
            # An abandoned transaction blocks readers. Check for expired transactions every second.
            "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
            "share.coordinator.state.topic.replication.factor": "1",
            "share.coordinator.state.topic.min.isr": "1",
            "share.coordinator.state.topic.num.partitions": "1",
            "log.cleaner.dedupe.buffer.size": str(16 * 1024 * 1024),  # for a heap of 512 MB
            "num.network.threads": "2",
            "num.io.threads": "4",
            **self._extra,
        }

    def _write_settings(self) -> None:
        settings = "".join(f"{key}={value}\n" for key, value in self._settings().items())
        (self.directory / "server.properties").write_text(settings)
        (self.directory / "log4j2.xml").write_text(_LOGGING)

    def _format(self, java: JavaRuntime, jars: Sequence[Path]) -> None:
        """Assign a cluster ID to an empty data folder. A formatted folder is left unchanged."""
        if self._identity_file.exists():
            return
        cluster_id = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        command = self._command(
            java,
            jars,
            (),
            "kafka.tools.StorageTool",
            "format",
            f"--cluster-id={cluster_id}",
            "--config",
            self.directory / "server.properties",
        )
        try:
            result = subprocess.run(
                command, capture_output=True, text=True, timeout=_FORMAT_SECONDS, check=False
            )
        except subprocess.TimeoutExpired as error:
            raise BrokerError(
                f"timed out after {_FORMAT_SECONDS:.0f} s while formatting {self.directory}"
            ) from error
        if result.returncode != 0:
            raise BrokerError(f"failed to format {self.directory}:\n{result.stdout}{result.stderr}")

    def _command(
        self,
        java: JavaRuntime,
        jars: Sequence[Path],
        options: Sequence[str],
        main: str,
        *arguments: str | Path,
    ) -> list[str | Path]:
        return [
            java.path,
            *_JVM_OPTIONS,
            *ClassDataArchive("broker", java, tuple(jars)).options(),
            f"-Dlog4j2.configurationFile={self.directory / 'log4j2.xml'}",
            "-Dlog4j2.disableJmx=true",
            *options,
            "-cp",
            os.pathsep.join(map(str, jars)),
            main,
            *arguments,
        ]

    def _wait_until_ready(self) -> None:
        """Wait until the broker is listed in its own metadata response.

        The port is checked first, because the client prints a line for each refused connection. The
        cluster ID shows whether the response is from this broker or from another broker on the same
        port, because this broker may not have detected the port conflict yet.
        """
        assert self._child is not None
        started = time.monotonic()
        deadline = started + self._start_seconds
        while not _listens(self._port):
            self._check_alive(deadline, "opening its port")
            self._child.wait(_POLL_SECONDS)
        admin = AdminClient(
            {
                "bootstrap.servers": self.bootstrap_servers,
                "log_level": 0,
                "reconnect.backoff.max.ms": 100,
            }
        )
        while True:
            try:
                cluster_metadata = admin.list_topics(timeout=2.0)
            except KafkaException as error:
                doing = f"waiting for a metadata response ({error})"
            else:
                is_ours = cluster_metadata.cluster_id == self.cluster_id
                if is_ours and cluster_metadata.brokers:
                    return
                doing = (
                    "registering with the controller"
                    if is_ours
                    else f"another broker responds on port {self._port}"
                )
            self._check_alive(deadline, doing)
            self._child.wait(_POLL_SECONDS)

    def _check_alive(self, deadline: float, doing: str) -> None:
        assert self._child is not None
        if (status := self._child.status) is not None:
            raise BrokerError(
                f"the broker exited with status {status} while {doing}:\n{self._log_excerpt()}"
            )
        if time.monotonic() >= deadline:
            raise BrokerError(
                f"timed out after {self._start_seconds:.0f} s while {doing}:\n{self._log_excerpt()}"
            )

    def _log_excerpt(self) -> str:
        """Return the relevant part of the log since the last start.

        It starts at the first error, because a shutdown writes many lines after the error.
        If there is no error, it is the end of the log.
        """
        with self.log_path.open("rb") as handle:
            handle.seek(self._log_start)
            lines = handle.read().decode(errors="replace").strip().splitlines()
        errors = [number for number, line in enumerate(lines) if " ERROR " in line]
        return "\n".join(lines[errors[0] :][:_LINES_SHOWN] if errors else lines[-_LINES_SHOWN:])


def _free_ports(chosen: int) -> tuple[int, int]:
    """Return two different free loopback ports, for clients and for the controller.

    They are below the range of ephemeral ports. While a broker is down, its clients keep trying to
    connect. A client whose ephemeral port happens to be the broker's port would connect to itself
    and occupy the port.
    """
    outgoing = _first_outgoing_port()
    candidates = random.sample(range(max(1024, outgoing - 12_000), outgoing), 200)
    free = (port for port in candidates if port != chosen and is_free(port))
    try:
        return chosen or next(free), next(free)
    except StopIteration:
        raise BrokerError(f"no free port below {outgoing}") from None


def _first_outgoing_port() -> int:
    try:
        return int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    except (OSError, ValueError):
        return 32_768  # most other systems use this limit or a higher one


def is_free(port: int) -> bool:
    """Return True if a broker could listen on this port now."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # same option as Kafka
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
        return True


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1.0)
        return probe.connect_ex((HOST, port)) == 0
