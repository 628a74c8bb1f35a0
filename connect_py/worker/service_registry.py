"""`ServiceRegistry`: the shared services of a worker, and who uses them."""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Callable, Iterator
from typing import Final

from connect_py.api.errors import ConnectError, RetriableError
from connect_py.api.service import SharedService
from connect_py.clock import Clock, SystemClock
from connect_py.metrics.samples import OwnSample
from connect_py.task.messages import AcquireService, Answer, ReleaseService, RequestService
from connect_py.worker.service_folder import ServiceFolder
from connect_py.worker.service_runner import (
    Outcome,
    Reply,
    RunnerParts,
    ServiceCounts,
    ServiceRunner,
    ServiceTimes,
    UserState,
    service_key,
)

MAX_KEY: Final = "connect_py.services.max"
DEFAULT_MAX: Final = 16
NAME: Final = re.compile(r"[a-z][a-z0-9-]{0,62}")
KILLED_SECONDS: Final = 3.0  # beyond the grace, for what had to be killed to be gone

log = logging.getLogger(__name__)


class ServiceRegistry:
    """Starts services at their first request and ends them after their last user. Any thread; only
    `close` waits."""

    def __init__(
        self,
        maximum: int = DEFAULT_MAX,
        clock: Clock | None = None,
        times: ServiceTimes | None = None,
        folder: ServiceFolder | None = None,
    ) -> None:
        """`maximum` is how many services of one name may run at the same time."""
        self._maximum = maximum
        self._times = times or ServiceTimes()
        self._folder = folder or ServiceFolder()
        self._lock = threading.Lock()
        self._parts = RunnerParts(
            self._lock, clock or SystemClock(), self._times, self._folder.path
        )
        self._runners: dict[tuple[object, ...], ServiceRunner] = {}
        self._counts: dict[str, ServiceCounts] = {}
        self._closed = False

    def start(self) -> None:
        """Remove what workers that died have left behind."""
        self._folder.sweep()

    def user(self, label: str, location: str | None = None) -> ServiceUser:
        """A user (task or connector) of services; `location` is the folder of `plugin.path` that
        its plugin lies in."""
        return ServiceUser(self, label, location)

    def close(self) -> None:
        """End all services, and take no more requests."""
        with self._lock:
            self._closed = True
            runners = list(self._runners.values())
            for runner in runners:
                runner.close()
        for runner in runners:
            runner.thread.join(self._times.grace + KILLED_SECONDS)
        self._folder.remove()

    def samples(self) -> list[OwnSample]:
        """The measurements of all services."""
        with self._lock:
            return list(self._samples())

    def _samples(self) -> Iterator[OwnSample]:
        runners = sorted(self._runners.values(), key=lambda runner: runner.instance)
        for name, counts in sorted(self._counts.items()):
            tags = {"service": name}
            mine = [runner for runner in runners if runner.service.name == name]
            users = {user for runner in mine for user in runner.users}
            up = sum(runner.address is not None for runner in mine)
            yield OwnSample(
                "connect_py_service_starts_total",
                "Processes of a shared service.",
                counts.starts,
                tags,
            )
            yield OwnSample(
                "connect_py_service_deaths_total",
                "Processes that ended unasked.",
                counts.deaths,
                tags,
            )
            yield OwnSample(
                "connect_py_service_users",
                "Tasks and connectors that use a service.",
                len(users),
                tags,
            )
            yield OwnSample(
                "connect_py_service_up", "Processes of a service that are ready.", up, tags
            )
        for runner in runners:
            tags = {"service": runner.service.name, "instance": str(runner.instance)}
            for metric, value in sorted(runner.metrics.items()):
                yield OwnSample(
                    f"connect_py_service_{metric}", "Reported by a shared service.", value, tags
                )

    # For users.

    def request(self, user: ServiceUser, service: SharedService, *, hold: bool) -> None:
        """Start a service; with `hold` the user counts."""
        with self._lock:
            if user.closed or service_key(service, user.location) in user.failures:
                return
            runner = self._runner(user, service)
            if hold:
                runner.add(user)
            else:
                runner.keep(self._times.early)

    def prestart(self, user: ServiceUser, service: SharedService) -> None:
        """Start a service before anybody needs it. It stops after `ServiceTimes.prestart` unless it
        gets a user.

        Does nothing if its name has reached its limit: it takes no place from a service that is
        needed.
        """
        with self._lock:
            known = service_key(service, user.location) in self._runners
            if self._closed or (
                not known and len(self._running(service.name)) >= self._limit(service)
            ):
                return
            self._runner(user, service).keep(self._times.prestart)

    def acquire(
        self,
        user: ServiceUser,
        service: SharedService,
        broken: int | None,
        timeout: float,
        reply: Reply,
    ) -> None:
        """Start a service if it does not run, count the user, and answer it once the service is
        ready."""
        with self._lock:
            if user.closed:
                raise RetriableError(f"{user.label} has ended and can use no service")
            if failure := user.failures.pop(service_key(service, user.location), None):
                raise failure
            runner = self._runner(user, service)
            runner.add(user)
            runner.wait_for(user, broken, timeout, reply)

    def release(self, user: ServiceUser, service: SharedService | None = None) -> None:
        """Count a user no more; without a service of none, for good."""
        replies: list[Reply] = []
        with self._lock:
            if service is None:
                user.closed = True
                user.failures.clear()
                runners = [runner for runner in self._runners.values() if user in runner.users]
            else:
                user.failures.pop(service_key(service, user.location), None)
                found = self._runners.get(service_key(service, user.location))
                runners = [] if found is None else [found]
            for runner in runners:
                replies += runner.remove(user)
        for reply in replies:
            reply(RetriableError(f"{user.label} uses the service no more"))

    def _runner(self, user: ServiceUser, service: SharedService) -> ServiceRunner:
        """The one that runs a service, made if there is none."""
        if self._closed:
            raise RetriableError(f"service {service.name}: the worker is stopping")
        if not NAME.fullmatch(service.name):
            raise ConnectError(
                f"{service.name!r} cannot be the name of a service: lower-case letters, digits "
                f"and -"
            )
        key = service_key(service, user.location)
        if (runner := self._runners.get(key)) is not None:
            return runner
        running, limit = self._running(service.name), self._limit(service)
        if (
            len(running) >= limit
            and (unused := next((each for each in running if not each.users), None)) is not None
        ):
            unused.drop()  # it was only started early
            running.remove(unused)
        if len(running) >= limit:
            raise ConnectError(
                f"{len(running)} services {service.name} with different settings run on this "
                f"worker already: "
                f"give connectors equal settings, or raise the worker's {service.limit_key}"
            )
        if running and service.limit is not None:
            log.warning(
                "%s has settings of its own for service %s: process %d of at most %d starts on "
                "this worker",
                user.label,
                service.name,
                len(running) + 1,
                limit,
            )
        counts = self._counts.setdefault(service.name, ServiceCounts())
        runner = self._runners[key] = ServiceRunner(
            service, user.location, self._parts, counts, self._forget
        )
        return runner

    def _running(self, name: str) -> list[ServiceRunner]:
        return [
            each for each in self._runners.values() if each.service.name == name and each.wanted
        ]

    def _limit(self, service: SharedService) -> int:
        return self._maximum if service.limit is None else service.limit

    def _forget(self, runner: ServiceRunner) -> None:
        self._runners = {key: other for key, other in self._runners.items() if other is not runner}


class ServiceUser(UserState):
    """One life of a task, or of a connector. A user that is closed counts no more."""

    def __init__(self, registry: ServiceRegistry, label: str, location: str | None) -> None:
        super().__init__(label, location)
        self._registry = registry

    def take(self, message: RequestService | ReleaseService) -> None:
        """Do what a task says; returns at once."""
        try:
            if isinstance(message, ReleaseService):
                self._registry.release(self, message.service)
            else:
                self._registry.request(self, message.service, hold=message.hold)
        except ConnectError as error:
            log.warning("%s cannot have service %s: %s", self.label, message.service.name, error)

    def answer(self, question: AcquireService, reply: Callable[[Answer], None]) -> None:
        """Answer a task's question, now or later, on any thread; returns at once."""

        def respond(outcome: Outcome) -> None:
            reply(_answered(question.number, outcome))

        try:
            self._registry.acquire(
                self, question.service, question.broken, question.timeout_seconds, respond
            )
        except ConnectError as error:
            respond(error)

    def close(self) -> None:
        """The task or the connector has ended. Any number of times."""
        self._registry.release(self)


def _answered(number: int, outcome: Outcome) -> Answer:
    if isinstance(outcome, ConnectError):
        return Answer(number, error=str(outcome), retriable=isinstance(outcome, RetriableError))
    return Answer(number, outcome)
