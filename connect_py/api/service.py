"""Shared services: programs that the worker runs once for several connectors and tasks.

A plugin requests a service from its context and gets the address that the program listens on. The
program is a Python module with a function `main(program)`, which the worker calls in a new process
with a `ServiceProgram`:

1. The program listens on a Unix socket at `program.socket`, serves clients that send
   `program.secret`, and calls `program.ready()`. With `liveness_seconds`, it promises to call
   `program.report()` more often than that; the worker kills a program that breaks the promise.
2. `program.failed(reason)` ends it if another start would not help: users get a `ConnectError` with
   the reason. After any other exit, the worker starts it again, with backoff and without limit.
3. Log records are sent to the worker's log. Other output, also of its children, is logged at INFO
   under `connect_py.service.<name>`.
4. It exits within 5 seconds after `program.wait_for_end()` has returned; then its process group is
   killed. On Linux, it is killed immediately when the worker exits.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Final, NoReturn, Protocol

EXIT_FAILED: Final = 78  # after `failed`: another start would not help
WAIT_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True)
class SharedService:
    """A program that the worker runs for a plugin.

    Equal services share one process of the worker.
    """

    name: str  # lower-case letters, digits, and `-`; used in logs, metrics, and errors
    program: str  # a Python module with a function `main(program: ServiceProgram)`
    # static; may contain secrets
    settings: Mapping[str, str] = field(default_factory=dict, repr=False, hash=False)
    # worker property: see `limit`
    limit_key: str = field(default="connect_py.services.max", compare=False)
    # maximum number of processes with this name; None: the worker's limit
    limit: int | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "settings", dict(self.settings))


@dataclass(frozen=True, slots=True)
class ServiceAddress:
    """The address that a service listens on."""

    socket: str  # path of a Unix socket that only this user of the machine can open
    secret: str = field(repr=False)  # authenticates clients; see the program's protocol
    generation: int  # increases with each process of the service


class SharedServices(Protocol):
    """Shared services and settings of the worker. Thread-safe.

    A task or connector that has requested a service is one of its users until it ends in any way.
    The worker stops a service that has no users.
    """

    def shared_service(
        self,
        service: SharedService,
        *,
        broken: int | None = None,
        timeout_seconds: float = WAIT_SECONDS,
    ) -> ServiceAddress:
        """Return the address of a service when it listens; start the service if necessary.

        After a connection was broken, pass its generation as `broken` to get the address of the
        next process. If the process seems to be running, the same address is returned after a
        second.

        Raises:
            RetriableError: The service was not ready within `timeout_seconds`; the worker continues
                to start it.
            ConnectError: The service cannot run. The message contains the reason.
        """

    def request_shared_service(self, service: SharedService) -> None:
        """Start a service in the background, for example in a task's `start`."""

    def release_shared_service(self, service: SharedService) -> None:
        """Stop using a service. Not necessary when the task or connector ends."""

    def worker_settings(self, prefix: str) -> Mapping[str, str]:
        """Return the resolved worker properties that start with `prefix`, by their full names."""


class ServiceProgram(Protocol):
    """The worker, as seen by the program of a service. Thread-safe."""

    @property
    def socket(self) -> str:
        """Path of the Unix socket to listen on."""

    @property
    def secret(self) -> str:
        """The secret that clients must send."""

    @property
    def settings(self) -> Mapping[str, str]:
        """Settings of the service."""

    def ready(self, liveness_seconds: float | None = None) -> None:
        """Announce that the socket listens. See the module for `liveness_seconds`."""

    def failed(self, reason: str) -> NoReturn:
        """Exit immediately: another start would not help. Users get the reason as an error."""

    def report(self, metrics: Mapping[str, float]) -> None:
        """Replace the metrics; names consist of lower-case letters, digits, and underscores."""

    def log_context(self, connector: str) -> AbstractContextManager[None]:
        """Attribute the log lines of this thread inside the block to a connector."""

    def wait_for_end(self) -> None:
        """Return when the worker requests the exit, or has exited itself."""


@dataclass(frozen=True, slots=True)
class ServiceStart:
    """The worker's first notification to the process of a service."""

    socket: str
    secret: str = field(repr=False)
    settings: Mapping[str, str] = field(repr=False)


@dataclass(frozen=True, slots=True)
class ServiceReady:
    """Notification of the process: the socket listens."""

    liveness_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class ServiceFailed:
    """Notification of the process before its exit with `EXIT_FAILED`."""

    reason: str
