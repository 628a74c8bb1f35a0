"""A PostgreSQL server on a loopback port, run from this machine's installation."""

from __future__ import annotations

import os
import pwd
import re
import secrets
import shlex
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from connect_py.api.errors import ConnectError
from connect_py.embedded.connect_process import free_port
from connect_py.embedded.started_service import StartedService
from connect_py.process.child_process import ChildProcess
from connect_py.process.scratch_folder import scratch_folder

HOST = "127.0.0.1"
ADMIN = "postgres"
# Locations where packages install the server if it is not in the PATH. The newest version is used.
LOCATIONS = (
    "/usr/lib/postgresql/*/bin",
    "/usr/pgsql-*/bin",
    "/opt/homebrew/opt/postgresql*/bin",
    "/usr/local/opt/postgresql*/bin",
)
MISSING = (
    "PostgreSQL's server is not installed: `initdb` is neither in the PATH nor in the usual "
    "locations.\nOn Debian and Ubuntu: apt-get install postgresql\nOn Fedora: dnf install "
    "postgresql-server\nOn macOS: brew install postgresql@17"
)
_UNPRIVILEGED = ("postgres", "nobody")  # users to run the server, which rejects root
_NOT_AS_ROOT = "PostgreSQL cannot run as root: run this command as a different user"
_INIT_SECONDS = 120.0
_START_SECONDS = 60.0
_STOP_SECONDS = 15.0
_QUERY_SECONDS = 60.0
_LOG_LINES = 20
_POLL_SECONDS = 0.1


class PostgresError(ConnectError):
    """PostgreSQL is not installed, failed to start, or rejected a statement."""


def find_postgres(environment: Mapping[str, str] | None = None) -> Path:
    """Return the folder that contains `initdb`, `postgres`, and `psql`.

    It is the folder in the PATH, or the newest version in the usual locations.

    Raises:
        PostgresError: PostgreSQL is not installed. The message explains how to install it.
    """
    path = (os.environ if environment is None else environment).get("PATH", "")
    if initdb := shutil.which("initdb", path=path):
        return Path(initdb).resolve().parent
    installed = [
        folder
        for pattern in LOCATIONS
        for folder in Path("/").glob(pattern.lstrip("/"))
        if (folder / "initdb").exists()
    ]
    if not installed:
        raise PostgresError(MISSING)
    return max(
        installed, key=lambda folder: [int(number) for number in re.findall(r"\d+", str(folder))]
    )


@dataclass(frozen=True, slots=True)
class _ServerUser:
    """User that runs the server: the current user or, instead of root, an unprivileged user."""

    uid: int | None = None  # None for the current user
    gid: int = 0

    @staticmethod
    def find() -> _ServerUser:
        if os.geteuid() != 0:
            return _ServerUser()
        if shutil.which("setpriv") is None:
            raise PostgresError(
                "PostgreSQL cannot run as root, and `setpriv` is not installed: run this "
                "command as a different user"
            )
        for name in _UNPRIVILEGED:
            try:
                user = pwd.getpwnam(name)
            except KeyError:
                continue
            return _ServerUser(user.pw_uid, user.pw_gid)
        raise PostgresError(_NOT_AS_ROOT)

    def prefix(self) -> list[str]:
        """Return the command prefix that switches to this user.

        Changing the user clears the parent-death signal, and `setpriv` sets it again.
        """
        if self.uid is None:
            return []
        program = shutil.which("setpriv") or "setpriv"
        return [
            program,
            f"--reuid={self.uid}",
            f"--regid={self.gid}",
            "--clear-groups",
            "--pdeathsig=QUIT",
            "--",
        ]

    def own(self, path: Path) -> None:
        if self.uid is not None:
            os.chown(path, self.uid, self.gid)


class PostgresServer(StartedService):
    """A database cluster with logical decoding.

    `stop` and `start` retain the data and the port until `close`.

    Clients connect over TCP on loopback with a password. If the current user is root, the data is
    in a temporary folder that an unprivileged user can access and that `close` removes.
    """

    def __init__(self, directory: Path) -> None:
        """Locate the installation and select a port.

        `directory` contains the log, the password file, and, unless the user is root, the data.

        Raises:
            PostgresError: PostgreSQL is not installed, or root cannot run it on this machine.
        """
        self._programs = find_postgres()
        self._runner = _ServerUser.find()
        directory.mkdir(parents=True, exist_ok=True)
        self._temporary = (
            scratch_folder("connect-py-postgres-") if self._runner.uid is not None else None
        )
        if self._temporary is not None:
            self._temporary.chmod(0o711)  # allow other users to traverse it
        self.data = (self._temporary or directory) / "data"
        self.log_path = directory / "postgres.log"
        self.port = free_port()
        self.password_file = directory / "pgpass"
        self._child: ChildProcess | None = None

    @property
    def pid(self) -> int:
        """Process ID of the server, available after a start."""
        assert self._child is not None
        return self._child.pid

    def start(self) -> Self:
        """Create the database cluster if necessary, start the server, and wait until it responds.

        Raises:
            PostgresError: The server failed to start. The message contains the end of its log.
        """
        if not (self.data / "PG_VERSION").exists():
            self._initialize()
        settings = {
            "listen_addresses": HOST,
            "port": str(self.port),
            "unix_socket_directories": "",
            "wal_level": "logical",
            "max_wal_senders": "8",
            "max_replication_slots": "8",
            "shared_buffers": "32MB",
            "timezone": "UTC",
            "logging_collector": "off",
        }
        options = [word for key, value in settings.items() for word in ("-c", f"{key}={value}")]
        command = [
            *self._runner.prefix(),
            str(self._programs / "postgres"),
            "-D",
            str(self.data),
            *options,
        ]
        self._child = ChildProcess(command, self.log_path)
        deadline = time.monotonic() + _START_SECONDS
        while not self._answers():
            if self._child.status is not None:
                raise PostgresError(
                    f"PostgreSQL exited with status {self._child.status}:\n{self._log_end()}"
                )
            if time.monotonic() > deadline:
                raise PostgresError(
                    f"PostgreSQL did not respond within {_START_SECONDS:g} s:\n{self._log_end()}"
                )
            self._child.wait(_POLL_SECONDS)
        return self

    def stop(self) -> None:
        """Shut down without waiting for clients, or kill the server after 15 seconds."""
        if self._child is not None:
            self._child.signal(signal.SIGINT)
            if not self._child.wait(_STOP_SECONDS):
                self._child.kill()

    def close(self) -> None:
        """Stop the server and remove temporary data."""
        self.stop()
        if self._temporary is not None:
            shutil.rmtree(self._temporary, ignore_errors=True)

    def psql_command(self, database: str) -> list[str]:
        """Return the administrator's psql command, which reads the password from `PGPASSFILE`."""
        program = self._programs / "psql"
        client = str(program) if program.exists() else "psql"
        return [client, "-X", "-h", HOST, "-p", str(self.port), "-U", ADMIN, "-d", database]

    def write_psql(self, script: Path, database: str) -> None:
        """Write an executable script that runs psql on a database with additional arguments."""
        command = shlex.join(
            ["env", f"PGPASSFILE={self.password_file}", *self.psql_command(database)]
        )
        script.write_text(f'#!/bin/sh\nexec {command} "$@"\n')
        script.chmod(0o700)

    def run(self, statements: str, database: str = ADMIN) -> str:
        """Run SQL and return the rows as lines with tab-separated columns.

        Execution stops at the first error.

        Raises:
            PostgresError: A statement was rejected.
        """
        result = self._psql(statements, database)
        if result.returncode != 0:
            raise PostgresError(f"PostgreSQL rejected a statement: {result.stderr.strip()}")
        return result.stdout

    def _psql(self, statements: str, database: str) -> subprocess.CompletedProcess[str]:
        options = ["-q", "-A", "-t", "-F", "\t", "-v", "ON_ERROR_STOP=1", "-f", "-"]
        return subprocess.run(
            [*self.psql_command(database), *options],
            env={
                **os.environ,
                "PGPASSFILE": str(self.password_file),
                "PGTZ": "UTC",
                "PGCLIENTENCODING": "UTF8",
            },
            input=statements,
            capture_output=True,
            text=True,
            timeout=_QUERY_SECONDS,
            check=False,
        )

    def _answers(self) -> bool:
        return self._psql("SELECT 1", ADMIN).returncode == 0

    def _initialize(self) -> None:
        password = secrets.token_urlsafe(18)
        self.password_file.touch(mode=0o600)
        self.password_file.write_text(f"{HOST}:{self.port}:*:{ADMIN}:{password}\n")
        self.data.mkdir(mode=0o700)
        self._runner.own(self.data)
        with tempfile.NamedTemporaryFile("w", dir=self.data.parent) as file:
            file.write(f"{password}\n")
            file.flush()
            self._runner.own(Path(file.name))
            self._run_initdb(file.name)

    def _run_initdb(self, password_file: str) -> None:
        options = (
            "--encoding=UTF8",
            "--no-locale",
            "--auth=scram-sha-256",
            "--no-sync",
            f"--pwfile={password_file}",
        )
        command: Sequence[str] = [
            *self._runner.prefix(),
            str(self._programs / "initdb"),
            "-D",
            str(self.data),
            "-U",
            ADMIN,
            *options,
        ]
        result = subprocess.run(
            command,
            cwd=self.data.parent,
            capture_output=True,
            text=True,
            timeout=_INIT_SECONDS,
            check=False,
        )
        if result.returncode != 0:
            raise PostgresError(f"initdb failed:\n{result.stdout}{result.stderr}")

    def _log_end(self) -> str:
        if not self.log_path.exists():
            return "no log"
        return "\n".join(self.log_path.read_text(errors="replace").splitlines()[-_LOG_LINES:])
