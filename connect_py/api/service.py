"""Shared services: programs that the worker runs once for several connectors and tasks.

A plugin requests a service from its context and receives the address on which the program listens.
The program is a Python module with a function `main(program)`. The worker calls this function in a
new process and passes a `ServiceProgram`:

1. The program listens on a Unix socket at `program.socket`, serves clients that send
   `program.secret`, and calls `program.ready()`. If it passes `liveness_seconds` to `ready`, it
   must then call `program.report()` at shorter intervals. Otherwise, the worker kills it.
2. If a restart would not help, the program exits by calling `program.failed(reason)`. Users of the
   service receive a `ConnectError` with the reason. After any other exit, the worker restarts the
   program, indefinitely and with backoff.
3. Log records are forwarded to the worker's log. All other output, including the output of child
   processes, is logged at INFO under `connect_py.service.<name>`.
4. The program exits within 5 seconds after `program.wait_for_end()` returns. After this time, its
   process group is killed. On Linux, the group is killed immediately when the worker exits.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Final, NoReturn, Protocol

EXIT_FAILED: Final = 78  # exit status after `failed`: a restart would not help
WAIT_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True)
class SharedService:
    """A program that the worker runs for a plugin.

    Within a worker, equal services share one process.
    """

    name: str  # lowercase letters, digits, and `-`; used in logs, metrics, and errors
    program: str  # a Python module with a function `main(program: ServiceProgram)`
    # constant settings, which may contain secrets
    settings: Mapping[str, str] = field(default_factory=dict, repr=False, hash=False)
    # worker property that sets the limit, for error messages
    limit_key: str = field(default="connect_py.services.max", compare=False)
    # maximum number of processes with this name; None to use the worker's limit
    limit: int | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "settings", dict(self.settings))


@dataclass(frozen=True, slots=True)
class ServiceAddress:
    """Address on which a service listens."""

    socket: str  # path of a Unix socket that only the current OS user can open
    secret: str = field(repr=False)  # authenticates clients; see the program's protocol
    generation: int  # increases with each new process of the service


class SharedServices(Protocol):
    """Shared services and settings of the worker. Thread-safe.

    A task or connector that has requested a service counts as a user of the service until it
    releases the service or ends for any reason. The worker stops a service that has no users.
    """

    def shared_service(
        self,
        service: SharedService,
        *,
        broken: int | None = None,
        timeout_seconds: float = WAIT_SECONDS,
    ) -> ServiceAddress:
        """Start a service if necessary, wait until it listens, and return its address.

        After a connection breaks, pass the generation from its address as `broken` to get the
        address of the next process. If the old process still seems to be running, the same address
        is returned after one second.

        Raises:
            RetriableError: The service was not ready within `timeout_seconds`. The worker keeps
                trying to start it.
            ConnectError: The service cannot run. The message contains the reason.
        """

    def request_shared_service(self, service: SharedService) -> None:
        """Start a service in the background, for example in a task's `start`."""

    def release_shared_service(self, service: SharedService) -> None:
        """Stop using a service. Not necessary when the task or connector ends."""

    def worker_settings(self, prefix: str) -> Mapping[str, str]:
        """Return the resolved worker properties that start with `prefix`, keyed by full name."""


class ServiceProgram(Protocol):
    """Interface between the program of a service and the worker. Thread-safe."""

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
        """Report that the program is listening. See the module docstring for `liveness_seconds`."""

    def failed(self, reason: str) -> NoReturn:
        """Exit without a restart. Users of the service receive the reason as an error."""

    def report(self, metrics: Mapping[str, float]) -> None:
        """Replace all metrics. Names consist of lowercase letters, digits, and underscores."""

    def log_context(self, connector: str) -> AbstractContextManager[None]:
        """Attribute this thread's log lines to a connector within a `with` block."""

    def wait_for_end(self) -> None:
        """Block until the worker requests an exit or has itself exited."""


@dataclass(frozen=True, slots=True)
class ServiceStart:
    """First notification from the worker to a service process."""

    socket: str
    secret: str = field(repr=False)
    settings: Mapping[str, str] = field(repr=False)


@dataclass(frozen=True, slots=True)
class ServiceReady:
    """Notification from a service process that it is listening on the socket."""

    liveness_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class ServiceFailed:
    """Notification from a service process before it exits with `EXIT_FAILED`."""

    reason: str
