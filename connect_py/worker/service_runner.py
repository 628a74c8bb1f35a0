"""`ServiceRunner`: runs one shared service while it has users, on a dedicated thread."""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
import re
import secrets
import select
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final

from connect_py.api.errors import ConnectError, RetriableError
from connect_py.api.service import (
    EXIT_FAILED,
    ServiceAddress,
    ServiceFailed,
    ServiceReady,
    ServiceStart,
    SharedService,
)
from connect_py.clock import Clock
from connect_py.process.channel import Handler
from connect_py.process.child import Child, exit_reason
from connect_py.process.child_process import ChildProcess

# metric names that a service may report; the worker's own metrics use the excluded names
METRIC: Final = re.compile(r"(?!(starts_total|deaths_total|users|up)$)[a-z][a-z0-9_]*")
LONGEST_WAIT: Final = 60.0

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ServiceTimes:
    """Time limits in seconds."""

    start: float = 180.0  # a process that is not ready after this time is killed
    first_backoff: float = 0.5  # doubled after each failure
    longest_backoff: float = 30.0
    stable: float = 60.0  # a process that was ready for this long resets the backoff
    grace: float = 5.0  # time from closing the channel to killing the process
    # a service without users runs for this much longer, so a restarted connector can reuse it
    linger: float = 2.0
    early: float = 60.0  # a service that was requested in advance waits this long for a user
    # a service that was started with the worker waits longer, because tasks must first be assigned
    prestart: float = 600.0
    # a process that a user has reported as broken is reused if it is still running after this time
    broken: float = 1.0


@dataclass(slots=True)
class ServiceCounts:
    """Numbers of process starts and deaths for all services with the same name."""

    starts: int = 0
    deaths: int = 0


@dataclass(eq=False, slots=True)
class UserState:
    """State of one service user."""

    label: str
    location: str | None  # `plugin.path` folder that contains the user's plugin
    closed: bool = False
    failures: dict[tuple[object, ...], ConnectError] = field(default_factory=dict)
    """Failures of the user's services by service key. The next request for such a
    service raises the failure."""


@dataclass(eq=False, slots=True)
class Waiter:
    """A user's pending request for the address of a service."""

    user: UserState
    reply: Future[ServiceAddress]
    broken: int | None
    requested_at: float
    deadline: float


@dataclass(slots=True)
class _ProcessState:
    """State of one process of a service."""

    address: ServiceAddress
    started_at: float
    ready_at: float | None = None
    failed: str | None = None
    ending: bool = False


@dataclass(frozen=True, slots=True)
class RunnerParts:
    """Objects that all runners of a worker share."""

    lock: threading.Lock  # guards the users and waiters of all services
    clock: Clock
    times: ServiceTimes
    folder: Callable[[], Path]
    generations: itertools.count[int] = field(default_factory=lambda: itertools.count(1))
    instances: itertools.count[int] = field(default_factory=lambda: itertools.count(1))


class ServiceRunner:
    """Runs one service. Public methods are called with the shared lock held and never block."""

    def __init__(
        self,
        service: SharedService,
        location: str | None,
        parts: RunnerParts,
        counts: ServiceCounts,
        ended: Callable[[ServiceRunner], None],
    ) -> None:
        """Start the runner.

        When the runner ends, it calls `ended` with the lock held. The runner accepts no users after
        that.
        """
        self.service = service
        self.instance = next(parts.instances)
        self.users: set[UserState] = set()
        self.metrics: Mapping[str, float] = {}
        self.address: ServiceAddress | None = None  # None unless the process is ready
        self._location = location
        self._lock = parts.lock
        self._parts = parts
        self._clock = parts.clock
        self._times = parts.times
        self._counts = counts
        self._on_end = ended
        self._waiters: list[Waiter] = []
        self._keep_until = 0.0
        self._closing = False
        self._ended = False
        self._failures = 0  # number of failures since the last stable process
        self._last_failure = ""
        self._wake_read, self._wake_write = os.pipe()
        os.set_blocking(self._wake_read, False)
        os.set_blocking(self._wake_write, False)
        self.thread = threading.Thread(
            target=self._run, name=f"service-{service.name}", daemon=True
        )
        self.thread.start()

    @property
    def wanted(self) -> bool:
        """Return True if the service has users or is still waiting for users."""
        return not self._closing and (
            bool(self.users) or self._clock.monotonic() < self._keep_until
        )

    def add(self, user: UserState) -> None:
        """Add a user."""
        self.users.add(user)
        self._wake()

    def remove(self, user: UserState) -> Sequence[Future[ServiceAddress]]:
        """Remove a user. Return the futures of its pending requests."""
        self.users.discard(user)
        replies = [waiter.reply for waiter in self._waiters if waiter.user is user]
        self._waiters = [waiter for waiter in self._waiters if waiter.user is not user]
        if not self.users:
            self._keep_until = self._clock.monotonic() + self._times.linger
        self._wake()
        return replies

    def wait_for(
        self, user: UserState, broken: int | None, timeout: float
    ) -> Future[ServiceAddress]:
        """Return a future for the address. The runner's thread completes it."""
        now = self._clock.monotonic()
        reply: Future[ServiceAddress] = Future()
        reply.set_running_or_notify_cancel()
        self._waiters.append(Waiter(user, reply, broken, now, now + timeout))
        self._wake()
        return reply

    def keep(self, seconds: float) -> None:
        """Keep the service running for at least this long, even without users."""
        self._keep_until = max(self._keep_until, self._clock.monotonic() + seconds)
        self._wake()

    def drop(self) -> None:
        """Stop immediately if there are no users.

        The service keeps running if a user is added before it has stopped.
        """
        self._keep_until = self._clock.monotonic()
        self._wake()

    def close(self) -> None:
        """Stop the service even if it has users."""
        self._closing = True
        self._wake()

    def _wake(self) -> None:
        if not self._ended:
            with contextlib.suppress(BlockingIOError):
                os.write(self._wake_write, b"\0")

    # The runner's thread

    def _run(self) -> None:
        failure: ConnectError | None = None
        try:
            while failure is None and not self._should_end():
                failure = self._run_process()
                if failure is None and self._last_failure:
                    self._back_off()
        except Exception as error:
            log.exception("failed to run service %s", self.service.name)
            failure = ConnectError(f"failed to run service {self.service.name}: {error}")
        self._finish(failure)

    def _should_end(self) -> bool:
        """Return True if the runner must end.

        The decision is made with the lock held, so no user can be added at the same time.
        """
        with self._lock:
            if self.wanted:
                return False
            self._ended = True
            self._on_end(self)
            return True

    def _finish(self, failure: ConnectError | None) -> None:
        with self._lock:
            if not self._ended:
                self._ended = True
                self._on_end(self)
            waiters, self._waiters = self._waiters, []
            users, self.users = self.users, set()
            if failure is not None:
                for user in users - {waiter.user for waiter in waiters}:
                    user.failures[self.service_key] = failure
            os.close(self._wake_read)
            os.close(self._wake_write)
        for waiter in waiters:
            waiter.reply.set_exception(
                failure or RetriableError(f"service {self.service.name}: the worker is stopping")
            )

    @property
    def service_key(self) -> tuple[object, ...]:
        """Key that identifies this service."""
        return service_key(self.service, self._location)

    def _back_off(self) -> None:
        """Wait before starting the next process."""
        times = self._times
        seconds = min(times.longest_backoff, times.first_backoff * 2 ** min(self._failures - 1, 16))
        until = self._clock.monotonic() + seconds
        log.warning(
            "service %s %s; restarting in %.1f s",
            self.service.name,
            self._last_failure,
            seconds,
            extra={
                "action": "service_died",
                "service": self.service.name,
                "deaths": self._failures,
            },
        )
        while self._is_wanted() and (remaining := until - self._clock.monotonic()) > 0:
            self._wait_for_wake(min(remaining, self._next_deadline()))
            self._respond()

    def _is_wanted(self) -> bool:
        with self._lock:
            return self.wanted

    def _wait_for_wake(self, timeout: float) -> None:
        if select.select([self._wake_read], [], [], max(0.0, timeout))[0]:
            with contextlib.suppress(BlockingIOError):
                os.read(self._wake_read, 1 << 12)

    def _next_deadline(self) -> float:
        """Return the number of seconds until the next timeout must be checked."""
        now = self._clock.monotonic()
        with self._lock:
            times = [waiter.deadline for waiter in self._waiters]
            if self.address is not None:
                times += [waiter.requested_at + self._times.broken for waiter in self._waiters]
            if not self.users:
                times.append(self._keep_until)
        return max(0.0, min([LONGEST_WAIT, *(at - now for at in times)]))

    def _respond(self) -> None:
        """Complete requests that can use the ready process, and fail requests that timed out."""
        now = self._clock.monotonic()
        ready, late = [], []
        with self._lock:
            address = self.address
            waiting = []
            for waiter in self._waiters:
                if address is not None and (
                    waiter.broken != address.generation
                    or now >= waiter.requested_at + self._times.broken
                ):
                    ready.append(waiter.reply)
                elif now >= waiter.deadline:
                    late.append(waiter)
                else:
                    waiting.append(waiter)
            self._waiters = waiting
        for reply in ready:
            assert address is not None
            reply.set_result(address)
        for waiter in late:
            message = self._timeout_message(now - waiter.requested_at)
            waiter.reply.set_exception(RetriableError(message))

    def _timeout_message(self, seconds: float) -> str:
        last = f"; its last process {self._last_failure}" if self._last_failure else ""
        return f"service {self.service.name} was not ready after {seconds:.0f} s{last}"

    # One process

    def _run_process(self) -> ConnectError | None:
        """Run one process until it exits. Return an error if restarting would not help."""
        name = self.service.name
        generation = next(self._parts.generations)
        self._last_failure = ""
        with self._lock:
            self._counts.starts += 1
        try:
            socket = self._parts.folder() / f"{generation}.socket"
        except OSError as error:
            self._record_failure(None, f"could not be started: {error}")
            return None
        address = ServiceAddress(str(socket), secrets.token_hex(32), generation)
        state = _ProcessState(address, self._clock.monotonic())
        child = Child(
            f"service-{name}",
            partial(launch_service, self.service.program, self._location),
            self._clock,
            None,
            on_heartbeat=self._set_metrics,
            on_output=self._log_output,
        )
        child.channel.notify(ServiceStart(address.socket, address.secret, self.service.settings))
        handle = partial(self._process_message, child, state)
        try:
            child.launch()
            log.info("service %s (instance %d): started process %d", name, self.instance, child.pid)
            while child.status is None:
                self._step(child, state, handle)
        except OSError as error:
            self._record_failure(None, f"could not be started: {error}")
            return None
        finally:
            with self._lock:
                self.address = None
            child.finish(handle)
            child.close(ConnectError("the service has ended"))
            with self._lock:
                # clear the address again, because one of the last messages may have set it
                self.address, self.metrics = (None, {})
            socket.unlink(missing_ok=True)
        if state.failed is not None and child.status == EXIT_FAILED:
            log.error(
                "service %s failed: %s", name, state.failed, extra={"action": "service_failed"}
            )
            return ConnectError(state.failed)
        if state.ending:
            log.info(
                "service %s (process %d) ended: %s", name, child.pid, exit_reason(child.status)
            )
            return None
        reason = f"(process {child.pid}) {child.outcome}"
        self._record_failure(state, f"{reason} ({state.failed})" if state.failed else reason)
        return None

    def _record_failure(self, state: _ProcessState | None, reason: str) -> None:
        with self._lock:
            self._counts.deaths += 1
        ready_at = None if state is None else state.ready_at
        stable = ready_at is not None and self._clock.monotonic() - ready_at >= self._times.stable
        self._failures = 1 if stable else self._failures + 1
        self._last_failure = reason

    def _step(self, child: Child, state: _ProcessState, handle: Handler) -> None:
        """Wait for one event of the process or of its users, and process it."""
        timeout = self._next_deadline()
        deadline = None
        if state.ready_at is None and not state.ending:
            deadline = state.started_at + self._times.start
            timeout = min(timeout, deadline - self._clock.monotonic())
        child.step(handle, max(0.0, timeout), self._wake_read)
        with contextlib.suppress(BlockingIOError):
            os.read(self._wake_read, 1 << 12)
        if not (state.ending or child.killed) and not self._is_wanted():
            state.ending = True
            with self._lock:
                self.address = None
            child.channel.end()
            child.expect_exit(self._times.grace)
        elif deadline is not None and state.ready_at is None and self._clock.monotonic() > deadline:
            child.kill(f"was not ready within {self._times.start:.0f} s and was killed")
        if child.killed:
            with self._lock:
                self.address = None
        elif not state.ending:
            self._respond()

    def _process_message(self, child: Child, state: _ProcessState, message: object) -> None:
        match message:
            case ServiceReady(liveness_seconds) if state.ready_at is None and not state.ending:
                state.ready_at = self._clock.monotonic()
                child.require_messages(liveness_seconds)
                with self._lock:
                    self.address = state.address
                log.info(
                    "service %s is ready after %.1f s",
                    self.service.name,
                    state.ready_at - state.started_at,
                    extra={"action": "service_ready", "service": self.service.name},
                )
            case ServiceFailed(reason):
                state.failed = reason

    def _set_metrics(self, report: Mapping[str, float]) -> None:
        self.metrics = {
            name: float(value)
            for name, value in report.items()
            if METRIC.fullmatch(name) and _is_number(value)
        }

    def _log_output(self, line: str) -> None:
        if line.strip():
            logger = logging.getLogger(f"connect_py.service.{self.service.name}")
            logger.info("%s", line.rstrip())


def launch_service(
    program: str, location: str | None, connection: Connection[Any, Any]
) -> ChildProcess:
    """Start a process for a service.

    `location` is the `plugin.path` folder that contains `program`, or None.
    """
    command = [
        sys.executable,
        "-P",
        "-m",
        "connect_py.worker.service_main",
        str(connection.fileno()),
        program,
        *([] if location is None else [location]),
    ]
    return ChildProcess(command, None, captured=True, connection=connection)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def service_key(service: SharedService, location: str | None) -> tuple[object, ...]:
    """Return the key of a service. Services with equal keys share a process."""
    return location, service.name, service.program, tuple(sorted(service.settings.items()))
