"""A broker for people: it outlives the command that started it and is ended by another."""

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
    """Where `connect-py kafka` keeps topics by default: with the user's data, not in the cache."""
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Application Support" / "connect-py" / "kafka"
    base = os.environ.get("XDG_DATA_HOME")
    return (Path(base) if base else Path.home() / ".local" / "share") / "connect-py" / "kafka"


@dataclass(frozen=True, slots=True)
class _Running:
    """What the pid file says. A process id alone could by now be another program's."""

    pid: int
    created: float  # seconds since 1970, as psutil tells it
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
    """The broker of one folder; at most one runs there. Commands of several processes take
    turns."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory.absolute()
        self._directory.mkdir(parents=True, exist_ok=True)

    def start(self, port: int = 0) -> tuple[str, bool]:
        """Return the bootstrap servers, and whether the broker was started now (False: it ran
        already).

        Args: port: Where clients connect; 0 takes the folder's last port, or a free one if that is
            taken.

        Raises:
            BrokerError, JavaNotFoundError, IvyError, JarLockError: As for `KafkaBroker.start`.
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
        """Shut the broker down, for certain after 20 s; False if none ran. Topics stay."""
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
        """Where the broker answers; None if none runs."""
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
        except (OSError, ValueError, TypeError):  # never started, or cut short while writing
            return None
