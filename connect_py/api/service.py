"""Shared services: programs of a plugin that the worker runs once for all connectors and tasks that
want them.

A plugin asks its context for a service and gets the address that the program listens on. The
program is a Python module that the worker runs as `python -m MODULE`; `ServiceProgram` is its side
of the contract:

1. The first line on its standard input is JSON: `{"socket": path, "secret": text, "settings":
   {...}}`. It listens on a Unix socket at that path and serves those who know the secret.
2. It prints the line `{"ready": true}` on its standard output once it listens. With
   `"silence_seconds": N` it promises a line at least every N seconds from then on; the worker kills
   it when it breaks that promise.
3. `{"failed": "why"}` and exit status 78 say that starting it again would not help: users get a
   `ConnectError` with that text. Any other end is a death: the worker starts it again, with
   back-off and without limit.
4. `{"metrics": {"heap_bytes": 1, ...}}` may come at any time; the worker serves the newest numbers.
5. Lines on standard error go to the worker's log: JSON `{"level", "logger", "message",
   "connector"}` as it says, any other text at INFO.
6. It ends at the end of its standard input, within 5 seconds; then its process group is killed. On
   Linux it is killed at once when the worker dies.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NoReturn, Protocol, Self

EXIT_FAILED: Final = 78  # together with a `failed` line: starting again would not help
WAIT_SECONDS: Final = 60.0
_PLAIN: Final = logging.Formatter()  # the worker adds the rest


@dataclass(frozen=True, slots=True)
class SharedService:
    """What a plugin wants to have run. Services that are equal are one process of the worker."""

    name: str  # lower-case letters, digits and `-`; stands in the log, in metrics and in errors
    program: str  # a Python module, run as `python -m MODULE`
    # static; may hold secrets
    settings: Mapping[str, str] = field(default_factory=dict, repr=False, hash=False)
    # worker property: see `limit`
    limit_key: str = field(default="connect_py.services.max", compare=False)
    # that many of this name may run; None: as the worker says
    limit: int | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "settings", dict(self.settings))


@dataclass(frozen=True, slots=True)
class ServiceAddress:
    """Where a service listens."""

    socket: str  # path of a Unix socket that only this user of the machine can open
    secret: str = field(repr=False)  # what the service wants to hear first
    generation: int  # grows with each process of the service


class SharedServices(Protocol):
    """How a plugin asks the worker for shared services and for its settings. Any thread.

    A task, or a connector, that asked for a service is one of its users until it ends, however it
    ends. The worker stops a service that has no users.
    """

    def shared_service(
        self,
        service: SharedService,
        *,
        broken: int | None = None,
        timeout_seconds: float = WAIT_SECONDS,
    ) -> ServiceAddress:
        """Return the address of a service, once it listens; start it if it does not run.

        After a connection broke, ask again with its `broken` generation. The answer is the address
        of the next process. If the process seems to live, the answer is the same address, after a
        second.

        Raises: RetriableError: The service was not ready within `timeout_seconds`; the worker goes
            on starting it. ConnectError: The service cannot run. The text says why.
        """

    def request_shared_service(self, service: SharedService) -> None:
        """Have a service started, and return at once: for a task's `start`, beside its other
        work."""

    def release_shared_service(self, service: SharedService) -> None:
        """Use a service no more. Not needed when the task or the connector ends."""

    def worker_settings(self, prefix: str) -> Mapping[str, str]:
        """The worker's properties that start with `prefix`, by their full names, placeholders
        resolved."""


class ServiceProgram:
    """The program's side: made first thing in the main module of a service, by `begin`.

    From then on, standard output belongs to the worker: what the program, its libraries and its
    children print goes to standard error.
    """

    def __init__(
        self, socket: str, secret: str, settings: Mapping[str, str], output: int, inputs: int
    ) -> None:
        """`output` and `inputs` are file descriptors; see `begin`."""
        self.socket = socket
        self.secret = secret
        self.settings = dict(settings)
        self._output = output
        self._inputs = inputs
        self._lock = threading.Lock()

    @classmethod
    def begin(cls) -> Self:
        """Read what the worker says first; take standard output and standard input for the worker
        alone."""
        sys.stdout.flush()
        output, inputs = os.dup(1), os.dup(0)  # not inherited by children
        os.dup2(2, 1)
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.close(nothing)
        line = bytearray()
        while not line.endswith(b"\n"):
            if not (read := os.read(inputs, 1 << 16)):
                raise SystemExit(0)  # the worker is gone, or wants nothing any more
            line += read
        said = json.loads(line)
        return cls(said["socket"], said["secret"], said["settings"], output, inputs)

    def ready(self, silence_seconds: float | None = None) -> None:
        """Say that the socket listens; `silence_seconds` promises a line (`report`) at least that
        often."""
        self._say(
            {"ready": True}
            | ({} if silence_seconds is None else {"silence_seconds": silence_seconds})
        )

    def failed(self, why: str) -> NoReturn:
        """End at once, for a reason that starting again does not change; callers get `why` as an
        error."""
        self._say({"failed": why})
        logging.shutdown()
        os._exit(EXIT_FAILED)

    def report(self, metrics: Mapping[str, float]) -> None:
        """Replace the measurements; names consist of lower-case letters, digits and underscores.
        Any thread."""
        self._say({"metrics": dict(metrics)})

    def wait_for_end(self) -> None:
        """Return when the worker wants the program to end, or is gone."""
        while os.read(self._inputs, 1 << 16):
            pass

    def _say(self, message: Mapping[str, object]) -> None:
        line = json.dumps(message).encode() + b"\n"
        with self._lock:
            while line:
                try:
                    line = line[os.write(self._output, line) :]
                except OSError:  # the worker is gone: `wait_for_end` returns
                    return


class ServiceLogHandler(logging.Handler):
    """Writes log records to standard error in the form that the worker understands.

    The attribute `connector` of a record (`extra={"connector": name}`) says which connector it is
    about.
    """

    def emit(self, record: logging.LogRecord) -> None:
        """Write one record, in one line."""
        try:
            line = {
                "level": record.levelname,
                "logger": record.name,
                "message": _PLAIN.format(record),
            }
            if connector := getattr(record, "connector", None):
                line["connector"] = str(connector)
            os.write(2, json.dumps(line).encode() + b"\n")
        except Exception:  # noqa: BLE001 - logging must not fail its caller
            self.handleError(record)
