"""`ConnectorHost`: manages a connector process for the worker."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from connect_py.api.errors import ConnectError, NotFoundError, RetriableError
from connect_py.clock import Clock
from connect_py.error_handling.failed_record import stack_trace
from connect_py.futures import done, failed, pass_on
from connect_py.log_context import log_context
from connect_py.model import State, TargetState
from connect_py.plugins.plugin_registry import PluginRegistry
from connect_py.process.child import Child
from connect_py.process.child_runtime import ExtendLease, SetLogLevels
from connect_py.process.fork_server import ForkServer
from connect_py.task.messages import AcquireService, Waits
from connect_py.worker.connector_messages import (
    CancelOperation,
    ChangeTarget,
    ConnectorEvent,
    ConnectorProcessSpec,
    MakeTaskConfigs,
    Operate,
    OperationProgress,
    Reconfigure,
    Request,
    ServiceRequest,
    ServiceUserEnded,
    ServiceUserRequest,
    StartConnector,
    StopConnector,
)
from connect_py.worker.service_registry import ServiceUser
from connect_py.worker.worker_listener import WorkerListener

CONNECTOR_MAIN: Final = "connect_py.worker.connector_process:run_connector_process"
STOP_SECONDS: Final = 5.0  # a connector that takes longer to stop is abandoned
STOPPING: Final = "the worker is stopping"

log = logging.getLogger(__name__)


@dataclass(slots=True)
class _HostedConnector:
    """A connector instance that is running or has failed on this worker."""

    user: int  # see `ServiceUserRequest`; distinguishes instances with the same name
    failed: bool = False


class ConnectorHost:
    """Starts the connector process on demand, and restarts it after a crash.

    A crash fails all connectors in the process. All methods are thread-safe; only `close` blocks.
    """

    def __init__(
        self,
        server: ForkServer,
        plugins: PluginRegistry,
        listener: WorkerListener,
        clock: Clock,
        liveness_seconds: float,
        worker_props: Mapping[str, str],
        create_user: Callable[[str], ServiceUser],
    ) -> None:
        """Create the host without starting the process.

        `create_user` takes a label and returns a new user of shared services.
        """
        self._worker_props = worker_props
        self._create_user = create_user
        self._server = server
        self._plugins = plugins
        self._listener = listener
        self._clock = clock
        self._liveness_seconds = liveness_seconds
        self._lock = threading.RLock()
        # service users of instances and of requests in progress, by user number; None until a user
        # first requests a service
        self._users: dict[int, ServiceUser | None] = {}
        # progress callbacks of operations, by user number
        self._progress: dict[int, Callable[[str], None]] = {}
        self._instances: dict[str, _HostedConnector] = {}
        self._log_levels: dict[str, int | None] = {}
        self._lease_until: float | None = None
        # requests that wait for the next process, because the lease of the current one has expired
        self._next: list[tuple[Request, Future[Any]]] = []
        self._child: Child | None = None
        self._thread: threading.Thread | None = None
        self._retired = False  # True if the process was killed when its lease expired
        self._closing = False

    @property
    def pid(self) -> int | None:
        """ID of the process, if it is running."""
        child = self._child
        return None if child is None else child.pid

    def start(self) -> None:
        """Start the process in the background."""
        with self._lock:
            if not self._closing:
                self._running_child()

    def close(self, timeout: float) -> None:
        """Stop the process. Pending requests fail."""
        with self._lock:
            self._closing = True
            thread, child = self._thread, self._child
            waiting, self._next = self._next, []
        for _, future in waiting:
            future.set_exception(ConnectError(STOPPING))
        if thread is not None and child is not None:
            child.kill()  # all of its connectors have been stopped or abandoned
            thread.join(timeout)

    def names(self) -> frozenset[str]:
        """Return the names of all connectors on this host, including failed connectors."""
        with self._lock:
            return frozenset(self._instances)

    def start_connector(
        self, name: str, config: Mapping[str, str], target: TargetState
    ) -> Future[None]:
        """Start an instance. The listener is notified of the result.

        The caller must stop an existing instance first.
        """
        request = StartConnector(name, dict(config), target)
        with self._lock:
            self._instances[name] = _HostedConnector(request.user)
        return self.request(request)

    def fail_connector(self, name: str, trace: str) -> None:
        """Register a connector that failed before its start request was sent to the process."""
        with self._lock:
            self._instances[name] = _HostedConnector(user=0, failed=True)
        self._listener.on_state(name, State.FAILED, trace)

    def stop_connector(self, name: str) -> Future[None]:
        """Stop an instance and deregister it immediately.

        The future completes when the instance has stopped or failed to stop, or after 5 s. The
        listener is notified even if a new instance has already been started.
        """
        with self._lock:
            instance = self._instances.pop(name, None)
        if instance is None:
            return done(None)
        stopped: Future[None] = Future()
        stopped.set_running_or_notify_cancel()
        once = threading.Lock()

        def finish(reason: str | None) -> None:
            if not once.acquire(blocking=False):
                return
            timer.cancel()
            self._end_user(instance.user)
            if reason is not None:
                log.error("Graceful stop of connector %s failed: %s", name, reason)
            self._listener.on_state(name, State.UNASSIGNED)
            stopped.set_result(None)

        timer = threading.Timer(STOP_SECONDS, finish, [f"timed out after {STOP_SECONDS:.0f} s"])
        timer.name = f"connector-stop-{name}"
        timer.daemon = True
        timer.start()
        self._stop_instance(name).add_done_callback(
            lambda f: finish(None if f.exception() is None else str(f.exception()))
        )
        return stopped

    def set_target_state(self, name: str, target: TargetState) -> None:
        """Change the target state of an instance. The listener is notified of the result."""
        with self._lock:
            if name not in self._instances:
                return
        outcome: Future[None] = self.request(ChangeTarget(name, target))
        outcome.add_done_callback(lambda f: f.exception())  # reported to the listener

    def task_configs(self, name: str, max_tasks: int) -> Future[list[dict[str, str]]]:
        """Request task configurations from an instance."""
        with self._lock:
            if name not in self._instances:
                return failed(NotFoundError(f"Connector {name} not found on this worker"))
        return self.request(MakeTaskConfigs(name, max_tasks))

    def request(self, request: Request) -> Future[Any]:
        """Send a request to the process and return a future for its result."""
        with self._lock:
            if self._closing:
                return failed(ConnectError(STOPPING))
            self._end_with_lease()
            if self._retired or self._lease_ended():
                future: Future[Any] = Future()
                future.set_running_or_notify_cancel()
                self._next.append((request, future))
                return future
            return self._send(request)

    def operate(
        self, request: Operate, progress: Callable[[str], None]
    ) -> tuple[Future[Any], Callable[[], None]]:
        """Send an `Operate` request. Return a future for the result and a cancel function.

        `progress` is called on the reading thread with each step that the connector reports.
        """
        with self._lock:
            self._progress[request.user] = progress
        future = self.request(request)
        future.add_done_callback(lambda _: self._progress.pop(request.user, None))

        def cancel() -> None:
            with self._lock:
                if request.user in self._users and self._child is not None:
                    self._child.channel.notify(CancelOperation(request.user))

        return future, cancel

    def set_log_levels(self, levels: Mapping[str, int | None]) -> None:
        """Change log levels in the current process and in all later ones."""
        with self._lock:
            self._log_levels |= levels
            if self._child is not None:
                self._child.channel.notify(SetLogLevels(dict(levels)))

    def extend_lease(self, until: float | None) -> None:
        """Set the time by which current and later processes must exit. None removes the limit."""
        with self._lock:
            self._end_with_lease()
            self._lease_until = until
            if self._child is not None:
                self._child.channel.notify(ExtendLease(until))
            self._send_next()

    def _lease_ended(self) -> bool:
        return self._lease_until is not None and self._clock.monotonic() >= self._lease_until

    def _end_with_lease(self) -> None:
        """Kill a process whose lease has expired, and send no more requests to it."""
        if self._lease_ended() and self._child is not None:
            self._retired = True
            self._child.kill("was killed at the end of its lease")

    def _send_next(self) -> None:
        """Send the requests that arrived after the lease expired, if the process has exited."""
        if not self._retired and not self._lease_ended():
            waiting, self._next = self._next, []
            for request, future in waiting:
                self._send(request).add_done_callback(partial(pass_on, future))

    def _send(self, request: Request) -> Future[Any]:
        if isinstance(request, ServiceUserRequest):
            self._users[request.user] = None
        reply = self._running_child().channel.call(request)
        if isinstance(request, ServiceUserRequest):
            reply.add_done_callback(lambda _: self._request_ended(request.user))
        return reply

    def _stop_instance(self, name: str) -> Future[None]:
        """Stop an instance. If there is no process, there is nothing to stop."""
        with self._lock:
            if self._child is None:
                return done(None)
            self._end_with_lease()
            return self._child.channel.call(StopConnector(name))

    def _running_child(self) -> Child:
        """Return the process. Start it if necessary."""
        if self._child is None:
            spec = ConnectorProcessSpec(
                self._plugins.tables, dict(self._log_levels), self._worker_props
            )
            self._child = Child(
                "connectors",
                partial(self._server.launch, "connectors", CONNECTOR_MAIN, spec),
                self._clock,
                self._liveness_seconds,
            )
            if self._lease_until is not None:
                self._child.channel.notify(ExtendLease(self._lease_until))
            self._thread = threading.Thread(
                target=self._supervise, args=(self._child,), name="connector-host", daemon=True
            )
            self._thread.start()
        return self._child

    # The supervisor's thread

    def _supervise(self, child: Child) -> None:
        try:
            child.run(self._handle)
            reason = STOPPING if self._closing else f"the connector process {child.outcome}"
        except Exception as error:
            log.exception("unexpected error while supervising the connector process")
            reason = str(error)
        self._clean_up(child, reason)

    def _clean_up(self, child: Child, reason: str) -> None:
        with self._lock:
            self._child = self._thread = None
            self._retired = False
            users, self._users = self._users, {}
            later = {r.user for r, _ in self._next if isinstance(r, StartConnector)}
            lost = [
                name
                for name, each in self._instances.items()
                if not (each.failed or each.user in later or self._closing)
            ]
            self._send_next()
            for name in lost:
                self._instances[name].failed = True
        if lost:
            log.error("%s; affected connectors: %s", reason, ", ".join(lost))
        for name in lost:
            self._listener.on_state(name, State.FAILED, stack_trace(ConnectError(reason)))
        for user in users.values():
            if user is not None:
                user.close()
        child.close(ConnectError(reason))

    def _handle(self, message: object) -> Future[Any] | None:
        match message:
            case OperationProgress(user, step):
                with self._lock:
                    show = self._progress.get(user)
                if show is not None:
                    show(step)
            case ConnectorEvent():
                self._handle_event(message)
            case ServiceRequest():
                return self._handle_service_request(message)
            case ServiceUserEnded(user):
                self._close_user(user)
        return None

    def _handle_service_request(self, request: ServiceRequest) -> Future[Any] | None:
        with self._lock:
            if request.user in self._users and self._users[request.user] is None:
                self._users[request.user] = self._create_user(f"connector {request.name}")
            user = self._users.get(request.user)
        if user is None:
            message = f"connector {request.name} has ended and can no longer use services"
            return failed(RetriableError(message))
        if isinstance(request.message, AcquireService):
            return user.acquire(request.message)
        user.notify(request.message)
        return None

    def _request_ended(self, number: int) -> None:
        """End the service user of a request, unless the request has started an instance."""
        with self._lock:
            if all(instance.user != number for instance in self._instances.values()):
                self._end_user(number)

    def _end_user(self, number: int) -> None:
        self._close_user(number)
        with self._lock:
            self._users.pop(number, None)

    def _close_user(self, number: int) -> None:
        """Release a user's services. The user may request services again later."""
        with self._lock:
            user = self._users.get(number)
            if user is not None:
                self._users[number] = None
        if user is not None:
            user.close()

    def _handle_event(self, event: ConnectorEvent) -> None:
        with self._lock:
            instance = self._instances.get(event.name)
            if instance is None or instance.user != event.user:
                return  # the event is from an abandoned instance
            if isinstance(event.event, State):
                instance.failed = event.event is State.FAILED
        with log_context(event.name, scope="worker"):
            match event.event:
                case Waits(waiting):
                    self._listener.on_waiting(event.name, waiting)
                case Reconfigure():
                    self._listener.on_reconfiguration_requested(event.name)
                case state:
                    self._listener.on_state(event.name, state, event.trace)
