"""`ConnectorHost`: the worker's side of the connector process."""

from __future__ import annotations

import itertools
import logging
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.connection import wait as wait_for_any
from multiprocessing.context import ForkServerProcess
from typing import Any, Final

from connect_py.api.errors import ConnectError, NotFoundError
from connect_py.clock import Clock
from connect_py.error_handling.failed_record import stack_trace
from connect_py.futures import done, failed
from connect_py.log_context import LogLine, log_context
from connect_py.model import State, TargetState
from connect_py.plugins.plugin_registry import PluginRegistry
from connect_py.task.messages import AcquireService, Answer, ExtendLease, SetLogLevels, Waits
from connect_py.worker.child_channel import ChildChannel
from connect_py.worker.connector_messages import (
    CancelOperation,
    ChangeTarget,
    ConnectorEvent,
    ConnectorProcessSpec,
    MakeTaskConfigs,
    Operate,
    OperationProgress,
    Reconfigure,
    Reply,
    Request,
    RequestType,
    ServiceAnswered,
    ServiceRequest,
    ServiceUserEnded,
    StartConnector,
    StopConnector,
)
from connect_py.worker.fork_server import ForkServer
from connect_py.worker.process_task_host import exit_reason
from connect_py.worker.service_registry import ServiceUser
from connect_py.worker.worker_listener import WorkerListener

CONNECTOR_MAIN: Final = "connect_py.worker.connector_process:run_connector_process"
STOP_SECONDS: Final = 5.0  # timeout of a connector's stop; the connector is abandoned afterward
LOOK_SECONDS: Final = 1.0

log = logging.getLogger(__name__)


@dataclass(slots=True)
class _HostedConnector:
    """A connector that runs or has failed on this worker."""

    generation: int
    failed: bool = False


class ConnectorHost:
    """Starts the connector process on demand, and again after a crash, which fails the connectors
    in it.

    All methods are thread-safe and never block.
    """

    def __init__(
        self,
        server: ForkServer,
        plugins: PluginRegistry,
        listener: WorkerListener,
        clock: Clock,
        silence_seconds: float,
        worker_props: Mapping[str, str],
        service_user: Callable[[str], ServiceUser],
    ) -> None:
        """Create the host without a process. `service_user` creates a user of shared services with
        a label.
        """
        self._worker_props = worker_props
        self._service_user = service_user
        self._users: dict[int, ServiceUser] = {}  # by the number of the request that created them
        self._server = server
        self._plugins = plugins
        self._listener = listener
        self._clock = clock
        self._silence_seconds = silence_seconds
        self._lock = threading.RLock()
        self._numbers = itertools.count(1)
        self._pending: dict[int, Future[Any]] = {}
        self._progress: dict[
            int, Callable[[str], None]
        ] = {}  # callbacks of operations, by request number
        self._unsent: list[Request] = []
        self._instances: dict[str, _HostedConnector] = {}
        self._log_levels: dict[str, int | None] = {}
        self._lease_until: float | None = None
        self._next: list[
            tuple[Request, Future[Any]]
        ] = []  # for the next process, after the lease of the current one has ended
        self._channel: ChildChannel | None = None
        self._process: ForkServerProcess | None = None
        self._thread: threading.Thread | None = None
        self._retired = False  # the process exits at the end of its lease
        self._closing = False

    @property
    def pid(self) -> int | None:
        """ID of the process, if it is running."""
        process = self._process
        return None if process is None else process.pid

    def start(self) -> None:
        """Start the process in the background."""
        with self._lock:
            if self._thread is None and not self._closing:
                self._thread = threading.Thread(
                    target=self._supervise, name="connector-host", daemon=True
                )
                self._thread.start()

    def close(self, timeout: float) -> None:
        """Stop the process. Pending requests fail."""
        with self._lock:
            self._closing = True
            thread, process = self._thread, self._process
            waiting, self._next = self._next, []
        for _, future in waiting:
            future.set_exception(ConnectError("the worker is stopping"))
        if thread is not None:
            if process is not None:
                # it has no state: everything in it was stopped or abandoned before
                process.kill()
            thread.join(timeout)

    def names(self) -> frozenset[str]:
        """Return the names of all connectors on this worker, including failed ones."""
        with self._lock:
            return frozenset(self._instances)

    def start_connector(
        self, name: str, config: Mapping[str, str], target: TargetState
    ) -> Future[None]:
        """Start an instance; the listener receives the result. An existing instance must be stopped
        first.
        """
        number = next(self._numbers)
        with self._lock:
            self._instances[name] = _HostedConnector(generation=number)
        return self._request(StartConnector(number, name, number, dict(config), target))

    def fail_connector(self, name: str, trace: str) -> None:
        """Register a connector whose start failed before it reached the process."""
        with self._lock:
            self._instances[name] = _HostedConnector(generation=next(self._numbers), failed=True)
        self._listener.on_state(name, State.FAILED, trace)

    def stop_connector(self, name: str) -> Future[None]:
        """Stop an instance. Completes when it has stopped or failed, or after 5 s; it is
        deregistered immediately.

        The listener is notified even if another instance follows.
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
            self._end_user(instance.generation)
            if reason is not None:
                log.error("Graceful stop of connector %s failed: %s", name, reason)
            self._listener.on_state(name, State.UNASSIGNED)
            stopped.set_result(None)

        timer = threading.Timer(STOP_SECONDS, finish, [f"timed out after {STOP_SECONDS:.0f} s"])
        timer.name = f"connector-stop-{name}"
        timer.daemon = True
        timer.start()
        answer: Future[None] = self._stop_request(StopConnector(next(self._numbers), name))
        answer.add_done_callback(
            lambda f: finish(None if f.exception() is None else str(f.exception()))
        )
        return stopped

    def set_target_state(self, name: str, target: TargetState) -> None:
        """Change the target state of an instance; the listener receives the result."""
        with self._lock:
            if name not in self._instances:
                return
        outcome: Future[None] = self._request(ChangeTarget(next(self._numbers), name, target))
        outcome.add_done_callback(lambda f: f.exception())  # reported to the listener

    def task_configs(self, name: str, max_tasks: int) -> Future[list[dict[str, str]]]:
        """Request task configurations from an instance."""
        with self._lock:
            if name not in self._instances:
                return failed(NotFoundError(f"Connector {name} not found on this worker"))
        return self._request(MakeTaskConfigs(next(self._numbers), name, max_tasks))

    def request_plugin(self, request_type: RequestType, *arguments: Any) -> Future[Any]:
        """Send a request about a plugin to the process. `arguments` are the fields after the
        number.
        """
        return self._request(request_type(next(self._numbers), *arguments))

    def operate(
        self, progress: Callable[[str], None], *arguments: Any
    ) -> tuple[Future[Any], Callable[[], None]]:
        """Send an `Operate` request. Return its response and a function that cancels it.

        Args:
            progress: Called with each step that the connector reports, on the reading thread.
            arguments: Fields of the request after the number.
        """
        number = next(self._numbers)
        with self._lock:
            self._progress[number] = progress
        future = self._request(Operate(number, *arguments))
        future.add_done_callback(lambda _: self._progress.pop(number, None))

        def cancel() -> None:
            with self._lock:
                if number in self._pending and self._channel is not None:
                    self._channel.send(CancelOperation(number))

        return future, cancel

    def set_log_levels(self, levels: Mapping[str, int | None]) -> None:
        """Change log levels in the current process and in later ones."""
        with self._lock:
            self._log_levels |= levels
            if self._channel is not None:
                self._channel.send(SetLogLevels(dict(levels)))

    def extend_lease(self, until: float | None) -> None:
        """Set the time by which the process must exit, now and for later processes. None: never."""
        with self._lock:
            self._end_with_lease()
            self._lease_until = until
            if self._channel is not None:
                self._channel.send(ExtendLease(until))
            self._send_next()

    def _lease_ended(self) -> bool:
        return self._lease_until is not None and self._clock.monotonic() >= self._lease_until

    def _end_with_lease(self) -> None:
        """Kill a process whose lease has ended, in case it is still running. It accepts no more
        requests.
        """
        if self._lease_ended() and self._process is not None:
            self._retired = True
            self._process.kill()

    def _send_next(self) -> None:
        """Send the requests that arrived after the end of a lease, once the old process has
        exited.
        """
        if not self._retired and not self._lease_ended():
            waiting, self._next = self._next, []
            for request, future in waiting:
                self._send(request, future)

    def _send(self, request: Request, future: Future[Any]) -> None:
        self._pending[request.number] = future
        if self._channel is None:
            self._unsent.append(request)
            self.start()
        else:
            self._channel.send(request)

    def _stop_request(self, request: StopConnector) -> Future[None]:
        """Stop an instance without starting a process for it: an instance ends with its process."""
        with self._lock:
            if self._thread is None:
                return done(None)
            self._end_with_lease()
            if self._retired:
                stopped: Future[None] = Future()
                stopped.set_running_or_notify_cancel()
                self._pending[request.number] = stopped
                return stopped
        return self._request(request)

    def _request(self, request: Request) -> Future[Any]:
        future: Future[Any] = Future()
        future.set_running_or_notify_cancel()
        with self._lock:
            if self._closing:
                future.set_exception(ConnectError("the worker is stopping"))
                return future
            self._end_with_lease()
            if self._retired or self._lease_ended():
                self._next.append((request, future))
                return future
            self._send(request, future)
        return future

    # The supervisor's thread

    def _supervise(self) -> None:
        reason = "the connector process could not be started"
        try:
            spec = ConnectorProcessSpec(
                self._plugins.tables, dict(self._log_levels), self._worker_props
            )
            process, connection = self._server.spawn("connectors", CONNECTOR_MAIN, spec)
            with self._lock:
                self._process = process
                self._channel = ChildChannel(connection, "connector-pipe")
                if self._log_levels != spec.log_levels:  # changed while the process was starting
                    self._channel.send(SetLogLevels(dict(self._log_levels)))
                if self._lease_until is not None:
                    self._channel.send(ExtendLease(self._lease_until))
                for request in self._unsent:
                    self._channel.send(request)
                self._unsent.clear()
                closing = self._closing
            reason = "the worker is stopping" if closing else self._watch(process, connection)
            process.kill()
            process.join()
        except Exception as error:
            log.exception("unexpected error while starting or watching the connector process")
            reason = str(error)
        finally:
            self._clean_up(reason)

    def _watch(self, process: ForkServerProcess, connection: Connection[Any, Any]) -> str:
        last_message_at = self._clock.monotonic()
        while True:
            ready = wait_for_any([connection, process.sentinel], LOOK_SECONDS)
            if connection in ready:
                try:
                    message = connection.recv()
                except (EOFError, OSError):
                    process.join(LOOK_SECONDS)
                    return (
                        f"the connector process ended unexpectedly: {exit_reason(process.exitcode)}"
                    )
                last_message_at = self._clock.monotonic()
                self._handle(message)
            elif process.sentinel in ready:
                process.join(LOOK_SECONDS)
                return f"the connector process ended unexpectedly: {exit_reason(process.exitcode)}"
            elif self._clock.monotonic() - last_message_at > self._silence_seconds:
                return (
                    f"the connector process was killed after {self._silence_seconds:.0f} s "
                    "without a heartbeat"
                )

    def _clean_up(self, reason: str) -> None:
        with self._lock:
            if self._channel is not None:
                self._channel.close()
                self._channel = None
            self._process = None
            self._thread = None
            self._retired = False
            self._unsent.clear()
            pending, self._pending = self._pending, {}
            users, self._users = self._users, {}
            later = {request.number for request, _ in self._next}
            failed = [
                n
                for n, each in self._instances.items()
                if not each.failed and each.generation not in later
            ]
            lost = [] if self._closing else failed
            self._send_next()
            for name in lost:
                self._instances[name].failed = True
        if lost:
            log.error("%s; affected connectors: %s", reason, ", ".join(lost))
        for name in lost:
            self._listener.on_state(name, State.FAILED, stack_trace(ConnectError(reason)))
        for user in users.values():
            user.close()
        for future in pending.values():
            future.set_exception(ConnectError(reason))

    def _handle(self, message: object) -> None:
        match message:
            case LogLine():
                message.emit()
            case Reply(number, value, error):
                with self._lock:
                    future = self._pending.pop(number, None)
                    started = any(
                        instance.generation == number for instance in self._instances.values()
                    )
                if not started:
                    self._end_user(number)
                if future is None:
                    return
                if error is not None:
                    future.set_exception(error)
                else:
                    future.set_result(value)
            case OperationProgress(number, step):
                with self._lock:
                    show = self._progress.get(number)
                if show is not None:
                    show(step)
            case ConnectorEvent():
                self._handle_event(message)
            case ServiceRequest():
                self._handle_service_request(message)
            case ServiceUserEnded(user):
                self._end_user(user)

    def _handle_service_request(self, request: ServiceRequest) -> None:
        with self._lock:
            if request.user not in self._users and (
                request.user in self._pending
                or any(each.generation == request.user for each in self._instances.values())
            ):
                self._users[request.user] = self._service_user(f"connector {request.name}")
            user = self._users.get(request.user)

        def reply(answer: Answer) -> None:
            with self._lock:
                if self._channel is not None:
                    self._channel.send(ServiceAnswered(request.user, answer))

        if user is None:
            if isinstance(request.message, AcquireService):
                ended = f"connector {request.name} has ended and cannot use services"
                reply(Answer(request.message.number, error=ended, retriable=True))
        elif isinstance(request.message, AcquireService):
            user.answer(request.message, reply)
        else:
            user.take(request.message)

    def _end_user(self, number: int) -> None:
        with self._lock:
            user = self._users.pop(number, None)
        if user is not None:
            user.close()

    def _handle_event(self, event: ConnectorEvent) -> None:
        with self._lock:
            instance = self._instances.get(event.name)
            if instance is None or instance.generation != event.generation:
                return  # of an abandoned instance
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
