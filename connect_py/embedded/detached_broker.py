"""A broker that outlives the command that starts it and is stopped by another command."""

from __future__ import annotations

import json
import os
import sys
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil

from connect_py.embedded.broker import HOST, KafkaBroker, is_free
from connect_py.embedded.cache_directory import exclusive

_STOP_SECONDS = 20.0
_KILL_SECONDS = 10.0
_OTHER_COMMAND_SECONDS = 120.0


def default_directory() -> Path:
    """Return the default folder for `connect-py kafka`. It is user data, not part of the cache."""
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Application Support" / "connect-py" / "kafka"
    base = os.environ.get("XDG_DATA_HOME")
    return (Path(base) if base else Path.home() / ".local" / "share") / "connect-py" / "kafka"


@dataclass(frozen=True, slots=True)
class _Running:
    """Contents of the PID file. The start time reveals process IDs that have been reused."""

    pid: int
    created: float  # process start time reported by psutil, in epoch seconds
    port: int

    def process(self) -> psutil.Process | None:
        try:
            process = psutil.Process(self.pid)
            if (
                abs(process.create_time() - self.created) < 1.0
                and process.status() != psutil.STATUS_ZOMBIE
            ):
                return process
        except psutil.NoSuchProcess:
            pass
        return None


class DetachedBroker:
    """The broker for one data folder, which outlives the process that starts it.

    At most one broker runs per folder. Commands in different processes are serialized.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory.absolute()
        self._directory.mkdir(parents=True, exist_ok=True)

    def start(self, port: int = 0) -> tuple[str, bool]:
        """Start the broker unless it is running, and return its bootstrap servers.

        The second value is True if this call started the broker.

        Args:
            port: Client port. 0 selects the port that this folder's broker last used if it is free,
                or another free port.

        Raises:
            BrokerError, JavaNotFoundError, IvyError, JarLockError: See `KafkaBroker.start`.
        """
        with self._turn():
            last = self._read()
            if last is not None and last.process() is not None:
                return f"{HOST}:{last.port}", False
            if port == 0 and last is not None and is_free(last.port):
                port = last.port
            broker = KafkaBroker(self._directory, port=port, detached=True).start()
            created = psutil.Process(broker.pid).create_time()
            running = _Running(
                broker.pid, created, int(broker.bootstrap_servers.rpartition(":")[2])
            )
            self._pid_file.write_text(json.dumps(asdict(running)))
            return broker.bootstrap_servers, True

    def stop(self) -> bool:
        """Stop the broker, or kill it after 20 seconds. Its topics are retained.

        Return False if it was not running.
        """
        with self._turn():
            last = self._read()
            process = last.process() if last is not None else None
            if process is None:
                return False
            process.terminate()
            try:
                process.wait(_STOP_SECONDS)
            except psutil.TimeoutExpired:
                process.kill()
                process.wait(_KILL_SECONDS)
            return True

    def bootstrap_servers(self) -> str | None:
        """Return the broker's bootstrap servers, or None if it is not running."""
        last = self._read()
        return None if last is None or last.process() is None else f"{HOST}:{last.port}"

    @property
    def _pid_file(self) -> Path:
        return self._directory / "broker.json"

    def _turn(self) -> AbstractContextManager[None]:
        return exclusive(self._directory / "broker.flock", _OTHER_COMMAND_SECONDS)

    def _read(self) -> _Running | None:
        try:
            return _Running(**json.loads(self._pid_file.read_text()))
        except (OSError, ValueError, TypeError):  # never started, or a command was interrupted
            return None
