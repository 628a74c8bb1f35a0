"""`ServiceRunner`: keeps one shared service running as long as it has users, on a thread of its
own."""

from __future__ import annotations

import contextlib
import itertools
import json
import logging
import os
import re
import secrets
import select
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeAlias

from connect_py.api.errors import ConnectError, RetriableError
from connect_py.api.service import EXIT_FAILED, ServiceAddress, SharedService
from connect_py.clock import Clock
from connect_py.worker.process_task_host import exit_reason
from connect_py.worker.service_process import ServiceProcess, launch_command

# those are ours
METRIC: Final = re.compile(r"(?!(starts_total|deaths_total|users|up)$)[a-z][a-z0-9_]*")
LONGEST_WAIT: Final = 60.0

Outcome: TypeAlias = ServiceAddress | ConnectError
Reply: TypeAlias = Callable[[Outcome], None]

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ServiceTimes:
    """In seconds."""

    start: float = 180.0  # until a process says that it is ready; then it is killed
    first_backoff: float = 0.5  # doubled with each death
    longest_backoff: float = 30.0
    stable: float = 60.0  # a process that was ready for so long begins the back-off anew
    grace: float = 5.0  # from the end of standard input to the kill
    linger: float = 2.0  # without users: a connector that is restarted finds its service again
    early: float = 60.0  # for a service that was requested early, until its first user comes
    # the same for a service that was started with the worker: another worker may get the task
    prestart: float = 600.0
    broken: float = 1.0  # for a process to be noticed as dead when a user says that it is broken


@dataclass(slots=True)
class ServiceCounts:
    """Of all services of one name."""

    starts: int = 0
    deaths: int = 0


@dataclass(eq=False, slots=True)
class UserState:
    """What is known of a user of services."""

    label: str
    location: str | None  # the folder of `plugin.path` that its plugin lies in
    closed: bool = False
    failures: dict[tuple[object, ...], ConnectError] = field(default_factory=dict)
    """Of services that it requested; raised when it asks."""


@dataclass(eq=False, slots=True)
class Waiter:
    """A user that waits for an address."""

    user: UserState
    reply: Reply
    broken: int | None
    asked: float
    deadline: float


@dataclass(slots=True)
class _Life:
    """What is known of one process."""

    address: ServiceAddress
    begun: float
    ready_at: float | None = None
    silence_seconds: float | None = None
    silent: float = 0.0  # seconds that were waited without a line
    failed: str | None = None
    ending_since: float | None = None
    killed_because: str | None = None
    killed: bool = False


@dataclass(frozen=True, slots=True)
class RunnerParts:
    """What the runners of a worker share."""

    lock: threading.Lock  # of users and waiters of all services
    clock: Clock
    times: ServiceTimes
    folder: Callable[[], Path]
    generations: itertools.count[int] = field(default_factory=lambda: itertools.count(1))
    instances: itertools.count[int] = field(default_factory=lambda: itertools.count(1))


class ServiceRunner:
    """Its public methods are called with the shared lock held, and return at once."""

    def __init__(
        self,
        service: SharedService,
        location: str | None,
        parts: RunnerParts,
        counts: ServiceCounts,
        ended: Callable[[ServiceRunner], None],
    ) -> None:
        """Begin. `ended` is called with the lock held when the runner ends: it takes no users after
        that."""
        self.service = service
        self.instance = next(parts.instances)
        self.users: set[UserState] = set()
        self.metrics: Mapping[str, float] = {}
        self.address: ServiceAddress | None = None  # of the process that is ready
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
        self._deaths = 0  # without a stable life between
        self._last_death = ""
        self._life: _Life | None = None
        self._wake_read, self._wake_write = os.pipe()
        os.set_blocking(self._wake_read, False)
        os.set_blocking(self._wake_write, False)
        self.thread = threading.Thread(
            target=self._run, name=f"service-{service.name}", daemon=True
        )
        self.thread.start()

    @property
    def wanted(self) -> bool:
        """Whether there are users, or may be soon."""
        return not self._closing and (
            bool(self.users) or self._clock.monotonic() < self._keep_until
        )

    def add(self, user: UserState) -> None:
        """Count a user."""
        self.users.add(user)
        self._wake()

    def remove(self, user: UserState) -> Sequence[Reply]:
        """Count a user no more; returns who still waits for an answer to it."""
        self.users.discard(user)
        left = [waiter.reply for waiter in self._waiters if waiter.user is user]
        self._waiters = [waiter for waiter in self._waiters if waiter.user is not user]
        if not self.users:
            self._keep_until = self._clock.monotonic() + self._times.linger
        self._wake()
        return left

    def wait_for(self, user: UserState, broken: int | None, timeout: float, reply: Reply) -> None:
        """Have `reply` called with the address, on the runner's thread."""
        now = self._clock.monotonic()
        self._waiters.append(Waiter(user, reply, broken, now, now + timeout))
        self._wake()

    def keep(self, seconds: float) -> None:
        """Run for this long without users."""
        self._keep_until = max(self._keep_until, self._clock.monotonic() + seconds)
        self._wake()

    def drop(self) -> None:
        """Stop running without users. A service that gets a user before it has stopped keeps
        running."""
        self._keep_until = self._clock.monotonic()
        self._wake()

    def close(self) -> None:
        """End, even while it is in use."""
        self._closing = True
        self._wake()

    def _wake(self) -> None:
        if not self._ended:
            with contextlib.suppress(BlockingIOError):
                os.write(self._wake_write, b"\0")

    # The runner's thread.

    def _run(self) -> None:
        failure: ConnectError | None = None
        try:
            while failure is None and not self._leave():
                failure = self._live()
                if failure is None and self._last_death:
                    self._back_off()
        except Exception as error:
            log.exception("service %s cannot be run", self.service.name)
            failure = ConnectError(f"service {self.service.name} cannot be run: {error}")
        self._finish(failure)

    def _leave(self) -> bool:
        """Whether this is the end: decided with the lock held, so that no user comes too late."""
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
            waiter.reply(
                failure or RetriableError(f"service {self.service.name}: the worker is stopping")
            )

    @property
    def service_key(self) -> tuple[object, ...]:
        """What tells this service from others."""
        return service_key(self.service, self._location)

    def _back_off(self) -> None:
        """Wait before the next process."""
        times = self._times
        seconds = min(times.longest_backoff, times.first_backoff * 2 ** min(self._deaths - 1, 16))
        until = self._clock.monotonic() + seconds
        log.warning(
            "service %s %s; it is started again in %.1f s",
            self.service.name,
            self._last_death,
            seconds,
            extra={"action": "service_died", "service": self.service.name, "deaths": self._deaths},
        )
        while self._is_wanted() and (left := until - self._clock.monotonic()) > 0:
            self._wait_for_wake(min(left, self._next_deadline()))
            self._answer()

    def _is_wanted(self) -> bool:
        with self._lock:
            return self.wanted

    def _wait_for_wake(self, timeout: float) -> None:
        if select.select([self._wake_read], [], [], max(0.0, timeout))[0]:
            with contextlib.suppress(BlockingIOError):
                os.read(self._wake_read, 1 << 12)

    def _next_deadline(self) -> float:
        """Seconds until a waiter, or the end of the time without users, must be looked at."""
        now = self._clock.monotonic()
        with self._lock:
            times = [waiter.deadline for waiter in self._waiters]
            if self.address is not None:
                times += [waiter.asked + self._times.broken for waiter in self._waiters]
            if not self.users:
                times.append(self._keep_until)
        return max(0.0, min([LONGEST_WAIT, *(at - now for at in times)]))

    def _answer(self) -> None:
        """Answer the waiters whose answer is known, or whose time is over."""
        now = self._clock.monotonic()
        answers: list[tuple[Reply, Outcome]] = []
        with self._lock:
            left = []
            for waiter in self._waiters:
                address = self.address
                if address is not None and (
                    waiter.broken != address.generation or now >= waiter.asked + self._times.broken
                ):
                    answers.append((waiter.reply, address))
                elif now >= waiter.deadline:
                    answers.append(
                        (waiter.reply, RetriableError(self._why_late(now - waiter.asked)))
                    )
                else:
                    left.append(waiter)
            self._waiters = left
        for reply, outcome in answers:
            reply(outcome)

    def _why_late(self, seconds: float) -> str:
        last = f"; its last process {self._last_death}" if self._last_death else ""
        return f"service {self.service.name} was not ready after {seconds:.0f} s{last}"

    # One process.

    def _live(self) -> ConnectError | None:
        """Run one process to its end; an error if another one would not help."""
        name, clock = self.service.name, self._clock
        generation = next(self._parts.generations)
        self._last_death = ""
        with self._lock:
            self._counts.starts += 1
        try:
            socket = self._parts.folder() / f"{generation}.socket"
        except OSError as error:
            self._died(None, f"could not be started: {error}")
            return None
        address = ServiceAddress(str(socket), secrets.token_hex(32), generation)
        first = {
            "socket": address.socket,
            "secret": address.secret,
            "settings": self.service.settings,
        }
        life = self._life = _Life(address, clock.monotonic())
        try:
            process = ServiceProcess(
                launch_command(self.service.program, self._location),
                json.dumps(first).encode() + b"\n",
                self._wake_read,
                self._hear,
                name,
                clock,
            )
        except OSError as error:
            self._died(None, f"could not be started: {error}")
            return None
        log.info(
            "service %s (instance %d) is started as process %d", name, self.instance, process.pid
        )
        try:
            while not process.exited():
                self._step(process, life)
        finally:
            with self._lock:
                self.address = None
            process.finish()
            with self._lock:
                self._life = None
                # also if its last words were that it is ready
                self.address, self.metrics = (None, {})
            socket.unlink(missing_ok=True)
        if life.failed is not None and process.code == EXIT_FAILED:
            log.error(
                "service %s failed: %s", name, life.failed, extra={"action": "service_failed"}
            )
            return ConnectError(life.failed)
        if life.ending_since is not None:
            log.info(
                "service %s (process %d) ended: %s", name, process.pid, exit_reason(process.code)
            )
            return None
        why = life.killed_because or f"ended: {exit_reason(process.code)}"
        self._died(
            life, f"(process {process.pid}) {why}" + (f" ({life.failed})" if life.failed else "")
        )
        return None

    def _died(self, life: _Life | None, why: str) -> None:
        with self._lock:
            self._counts.deaths += 1
        ready_at = None if life is None else life.ready_at
        stable = ready_at is not None and self._clock.monotonic() - ready_at >= self._times.stable
        self._deaths = 1 if stable else self._deaths + 1
        self._last_death = why

    def _step(self, process: ServiceProcess, life: _Life) -> None:
        """Wait for something to happen to the process or its users, and see to it."""
        times, begun = self._times, self._clock.monotonic()
        timeout = self._next_deadline()
        if life.killed:
            timeout = LONGEST_WAIT
        elif life.ending_since is not None:
            timeout = life.ending_since + times.grace - begun
        elif life.ready_at is None:
            timeout = min(timeout, life.begun + times.start - begun)
        elif life.silence_seconds is not None:
            timeout = min(timeout, life.silence_seconds / 4)
        wrote = process.wait(timeout)
        now = self._clock.monotonic()
        if life.ready_at is not None and life.silence_seconds is not None:
            # Counted in short waits: a worker that was stopped itself has not listened for long.
            life.silent = 0.0 if wrote else life.silent + min(now - begun, life.silence_seconds / 4)
        if life.killed:
            return
        if life.ending_since is not None:
            if now >= life.ending_since + times.grace:
                log.warning(
                    "service %s (process %d) does not end and is killed",
                    self.service.name,
                    process.pid,
                )
                self._kill(process, life)
        elif not self._is_wanted():
            life.ending_since = now
            with self._lock:
                self.address = None
            process.close_stdin()
        elif life.ready_at is None and now >= life.begun + times.start:
            life.killed_because = f"was not ready within {times.start:.0f} s and was killed"
            self._kill(process, life)
        elif life.silence_seconds is not None and life.silent >= life.silence_seconds:
            life.killed_because = f"was silent for {life.silence_seconds:.0f} s and was killed"
            self._kill(process, life)
        else:
            self._answer()

    def _kill(self, process: ServiceProcess, life: _Life) -> None:
        life.killed = True
        with self._lock:
            self.address = None
        process.kill()

    def _hear(self, line: str) -> None:
        """Take a line of the process's standard output."""
        life = self._life
        said: Any = None
        with contextlib.suppress(ValueError):
            said = json.loads(line)
        if life is None or not isinstance(said, dict):
            if line.strip():
                logging.getLogger(f"connect_py.service.{self.service.name}").info(
                    "%s", line.rstrip()
                )
            return
        if (
            said.get("ready") is True
            and life.ready_at is None
            and life.ending_since is None
            and not life.killed
        ):
            life.ready_at = self._clock.monotonic()
            silence = said.get("silence_seconds")
            life.silence_seconds = (
                float(silence) if isinstance(silence, int | float) and silence > 0 else None
            )
            with self._lock:
                self.address = life.address
            log.info(
                "service %s is ready after %.1f s",
                self.service.name,
                life.ready_at - life.begun,
                extra={"action": "service_ready", "service": self.service.name},
            )
        if "failed" in said:
            life.failed = str(said["failed"])
        if isinstance(metrics := said.get("metrics"), dict):
            self.metrics = {
                n: float(v) for n, v in metrics.items() if METRIC.fullmatch(n) and _is_number(v)
            }


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def service_key(service: SharedService, location: str | None) -> tuple[object, ...]:
    """What tells a service from others; services that are equal share a process."""
    return location, service.name, service.program, tuple(sorted(service.settings.items()))
