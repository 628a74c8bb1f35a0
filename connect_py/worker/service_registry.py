"""`ServiceRegistry`: manages the shared services of a worker and their users."""

from __future__ import annotations

import logging
import os
import re
import shutil
import tempfile
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Final

from connect_py.api.errors import ConnectError, RetriableError
from connect_py.api.service import ServiceAddress, SharedService
from connect_py.clock import Clock, SystemClock
from connect_py.futures import failed
from connect_py.metrics.samples import OwnSample
from connect_py.plurals import pluralize
from connect_py.process.scratch_folder import scratch_folder
from connect_py.task.messages import AcquireService, ReleaseService, RequestService
from connect_py.worker.service_runner import (
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
FOLDER_PREFIX: Final = "connect-py-services-"
# maximum length of the parent folder in bytes: some systems limit socket paths to 103 bytes
LONGEST_PARENT: Final = 60
KILLED_SECONDS: Final = 3.0  # time for killed processes to exit after the grace period

log = logging.getLogger(__name__)


class ServiceRegistry:
    """Starts a service when it is first requested, and stops it when it has no more users.

    Thread-safe; only `close` blocks.
    """

    def __init__(
        self,
        maximum: int = DEFAULT_MAX,
        clock: Clock | None = None,
        times: ServiceTimes | None = None,
        folder: Path | None = None,
    ) -> None:
        """Create the registry.

        Args:
            maximum: Maximum number of running services with the same name.
            clock: Source of monotonic time.
            times: Time limits.
            folder: Parent folder of the socket folder. Defaults to the system's temporary
                directory.
        """
        self._maximum = maximum
        self._times = times or ServiceTimes()
        self._lock = threading.Lock()
        self._folder = _SocketFolder(folder or Path(tempfile.gettempdir()))
        self._parts = RunnerParts(
            self._lock, clock or SystemClock(), self._times, self._folder.path
        )
        self._runners: dict[tuple[object, ...], ServiceRunner] = {}
        self._counts: dict[str, ServiceCounts] = {}
        self._closed = False

    def user(self, label: str, location: str | None = None) -> ServiceUser:
        """Create a service user for a task or connector.

        `location` is the `plugin.path` folder that contains the task's or connector's plugin.
        """
        return ServiceUser(self, label, location)

    def close(self) -> None:
        """Stop all services and reject new requests."""
        with self._lock:
            self._closed = True
            runners = list(self._runners.values())
            for runner in runners:
                runner.close()
        for runner in runners:
            runner.thread.join(self._times.grace + KILLED_SECONDS)
        self._folder.remove()

    def samples(self) -> list[OwnSample]:
        """Return the metrics of all services."""
        with self._lock:
            return list(self._samples())

    def _samples(self) -> Iterator[OwnSample]:
        runners = sorted(self._runners.values(), key=lambda runner: runner.instance)
        for name, counts in sorted(self._counts.items()):
            tags = {"service": name}
            service_runners = [runner for runner in runners if runner.service.name == name]
            users = {user for runner in service_runners for user in runner.users}
            up = sum(runner.address is not None for runner in service_runners)
            yield OwnSample(
                "connect_py_service_starts_total",
                "Processes of a shared service that were started.",
                counts.starts,
                tags,
            )
            yield OwnSample(
                "connect_py_service_deaths_total",
                "Processes of a shared service that ended unexpectedly.",
                counts.deaths,
                tags,
            )
            yield OwnSample(
                "connect_py_service_users",
                "Tasks and connectors that use a shared service.",
                len(users),
                tags,
            )
            yield OwnSample(
                "connect_py_service_up", "Processes of a shared service that are ready.", up, tags
            )
        for runner in runners:
            tags = {"service": runner.service.name, "instance": str(runner.instance)}
            for metric, value in sorted(runner.metrics.items()):
                yield OwnSample(
                    f"connect_py_service_{metric}", "Reported by a shared service.", value, tags
                )

    # Methods for service users

    def request(self, user: ServiceUser, service: SharedService, *, hold: bool) -> None:
        """Start a service if necessary. If `hold` is true, add the user to it."""
        with self._lock:
            if user.closed or service_key(service, user.location) in user.failures:
                return
            runner = self._runner(user, service)
            if hold:
                runner.add(user)
            else:
                runner.keep(self._times.early)

    def prestart(self, user: ServiceUser, service: SharedService) -> None:
        """Start a service before it is needed.

        The service stops after `ServiceTimes.prestart` if it has no user by then. It is not started
        if the number of services with its name has reached the limit, because starting it could
        displace a service in use.
        """
        with self._lock:
            exists = service_key(service, user.location) in self._runners
            if self._closed or (
                not exists and len(self._running(service.name)) >= self._limit(service)
            ):
                return
            self._runner(user, service).keep(self._times.prestart)

    def acquire(
        self,
        user: ServiceUser,
        service: SharedService,
        broken: int | None,
        timeout: float,
    ) -> Future[ServiceAddress]:
        """Start a service if necessary and add the user to it.

        The future completes with the address when the service is ready. `broken` is the generation
        of an earlier address that the user cannot reach, or None.
        """
        with self._lock:
            if user.closed:
                raise RetriableError(f"{user.label} has ended and can no longer use services")
            if failure := user.failures.pop(service_key(service, user.location), None):
                raise failure
            runner = self._runner(user, service)
            runner.add(user)
            return runner.wait_for(user, broken, timeout)

    def release(self, user: ServiceUser, service: SharedService | None = None) -> None:
        """Remove a user from a service, or permanently from all services if `service` is None."""
        replies: list[Future[ServiceAddress]] = []
        with self._lock:
            if service is None:
                user.closed = True
                user.failures.clear()
                runners = [runner for runner in self._runners.values() if user in runner.users]
            else:
                user.failures.pop(service_key(service, user.location), None)
                runner = self._runners.get(service_key(service, user.location))
                runners = [] if runner is None else [runner]
            for runner in runners:
                replies += runner.remove(user)
        for reply in replies:
            reply.set_exception(RetriableError(f"{user.label} has released the service"))

    def _runner(self, user: ServiceUser, service: SharedService) -> ServiceRunner:
        """Return the runner of a service. Create it if necessary."""
        if self._closed:
            raise RetriableError(f"service {service.name}: the worker is stopping")
        if not NAME.fullmatch(service.name):
            raise ConnectError(
                f"invalid service name {service.name!r}: expected lower-case letters, digits, "
                "and hyphens"
            )
        key = service_key(service, user.location)
        if (runner := self._runners.get(key)) is not None:
            return runner
        running, limit = self._running(service.name), self._limit(service)
        if (
            len(running) >= limit
            and (unused := next((each for each in running if not each.users), None)) is not None
        ):
            unused.drop()  # it was started in advance and has no users
            running.remove(unused)
        if len(running) >= limit:
            raise ConnectError(
                f"this worker already runs {pluralize(len(running), 'instance')} of service "
                f"{service.name} with different settings: use the same settings for all "
                f"connectors, or increase the worker's {service.limit_key}"
            )
        if running and service.limit is not None:
            log.warning(
                "%s has its own settings for service %s: starting process %d of at most %d on "
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


class _SocketFolder:
    """Private folder for the services' sockets. Created on first use. Thread-safe."""

    def __init__(self, parent: Path) -> None:
        is_short = len(os.fsencode(parent)) <= LONGEST_PARENT
        self._parent = parent if is_short else Path("/tmp")
        self._lock = threading.Lock()
        self._path: Path | None = None

    def path(self) -> Path:
        with self._lock:
            self._path = self._path or scratch_folder(FOLDER_PREFIX, self._parent)
            return self._path

    def remove(self) -> None:
        with self._lock:
            if self._path is not None:
                shutil.rmtree(self._path, ignore_errors=True)


class ServiceUser(UserState):
    """Represents one run of a task or connector as a user of services. `close` releases them."""

    def __init__(self, registry: ServiceRegistry, label: str, location: str | None) -> None:
        super().__init__(label, location)
        self._registry = registry

    def notify(self, message: RequestService | ReleaseService) -> None:
        """Process a notification from the task or connector. Never blocks."""
        try:
            if isinstance(message, ReleaseService):
                self._registry.release(self, message.service)
            else:
                self._registry.request(self, message.service, hold=message.hold)
        except ConnectError as error:
            log.warning(
                "failed to provide service %s to %s: %s", message.service.name, self.label, error
            )

    def acquire(self, request: AcquireService) -> Future[ServiceAddress]:
        """Request a service. Return a future for its address. Never blocks."""
        try:
            return self._registry.acquire(
                self, request.service, request.broken, request.timeout_seconds
            )
        except ConnectError as error:
            return failed(error)

    def close(self) -> None:
        """Release all services permanently. May be called repeatedly."""
        self._registry.release(self)
