"""`WorkerTasks`: starts and stops a worker's tasks, with at most one run of each task at a time."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from typing import Any, Final, TypeAlias

from connect_py.clock import Clock
from connect_py.error_handling.failed_record import stack_trace
from connect_py.futures import done
from connect_py.log_context import log_context
from connect_py.metrics.task_report import TaskReport
from connect_py.metrics.worker_metrics import WorkerMetrics
from connect_py.model import ConnectorTaskId, State, TargetState
from connect_py.secret_mask import hidden_in
from connect_py.task.messages import (
    AcquireService,
    CopySourceOffsets,
    Failed,
    FromTask,
    Paused,
    ReleaseService,
    RequestService,
    RequestStop,
    Resumed,
    Started,
    Stopped,
    TaskSpec,
    TopicUsed,
    Waits,
    Warns,
)
from connect_py.worker.service_registry import ServiceUser
from connect_py.worker.source_task_session import SourceTaskSession
from connect_py.worker.task_host import TaskHost, TaskListener
from connect_py.worker.worker_listener import WorkerListener

KILL_SECONDS: Final = 5.0  # time for a killed process to exit
WRITE_SECONDS: Final = 35.0  # time for pending offset writes; the client fails them after 30 s

Props: TypeAlias = Mapping[str, str]
ConfigResolver: TypeAlias = Callable[[Props], Props]
"""Resolves the config provider placeholders in a configuration. Raises ConfigError if a provider
fails."""
TaskHostFactory: TypeAlias = Callable[[TaskSpec, TaskListener], TaskHost]

log = logging.getLogger(__name__)


class _Slot:
    """One run of one task. Its host is created later, unless the run is abandoned first."""

    def __init__(self, target: TargetState, previous: _Slot | None) -> None:
        self.host: TaskHost | None = None
        self.session: TaskSession | None = None
        self.abandoned = False
        self.target = target
        # the previous run of the task, which must end before the host of this run is created
        self.previous = previous

    def last_run(self) -> _Slot:
        """Return this run, or the previous run if it has not ended yet."""
        return self if self.host is not None or self.previous is None else self.previous.last_run()


class WorkerTasks:
    """Starts and stops tasks. All methods are thread-safe; only `end_all` blocks."""

    def __init__(
        self,
        executor: ThreadPoolExecutor,
        listener: WorkerListener,
        metrics: WorkerMetrics,
        clock: Clock,
        resolve: ConfigResolver,
        graceful_seconds: float,
        make_host: TaskHostFactory,
        make_session: Callable[[TaskSpec], TaskSession],
    ) -> None:
        """Create the object without starting any task.

        Args:
            executor: Runs the starts and stops of tasks. The caller closes it.
            listener: Receives the tasks' events.
            metrics: Metrics of the worker.
            clock: Source of monotonic time.
            resolve: Resolves connector and task configurations.
            graceful_seconds: Time within which tasks must stop.
            make_host: Creates the host of a task.
            make_session: Creates the session for a task whose configuration has been resolved.
        """
        self._executor = executor
        self._listener = listener
        self._metrics = metrics
        self._clock = clock
        self._resolve = resolve
        self.graceful_seconds = graceful_seconds
        self._make_host = make_host
        self._make_session = make_session
        self._lock = threading.Lock()
        self._tasks: dict[ConnectorTaskId, _Slot] = {}
        self._log_levels: dict[str, int | None] = {}
        self._lease_until: float | None = None
        self._stopping = False

    def ids(self) -> frozenset[ConnectorTaskId]:
        """Return the started tasks, including failed tasks.

        Tasks that have been stopped or canceled are not included.
        """
        with self._lock:
            return frozenset(self._tasks)

    def reports(self) -> dict[ConnectorTaskId, TaskReport]:
        """Return the latest metrics of each task."""
        with self._lock:
            return {
                task: slot.host.report
                for task, slot in self._tasks.items()
                if slot.host is not None
            }

    def _hosts(self) -> list[TaskHost]:
        return [slot.host for slot in self._tasks.values() if slot.host is not None]

    def set_target_state(self, name: str, target: TargetState) -> None:
        """Set the target state of a connector's tasks."""
        with self._lock:
            slots = [slot for task, slot in self._tasks.items() if task.connector == name]
            for slot in slots:
                slot.target = target
            hosts = [slot.host for slot in slots if slot.host is not None]
        for host in hosts:
            host.set_target_state(target)

    def set_log_levels(self, levels: Mapping[str, int | None]) -> None:
        """Change log levels in all current and future tasks."""
        with self._lock:
            self._log_levels |= levels
            hosts = self._hosts()
        for host in hosts:
            host.set_log_levels(levels)

    def extend_lease(self, until: float | None) -> None:
        """Set the time by which all tasks must have exited. None removes the limit."""
        with self._lock:
            self._lease_until = until
            hosts = self._hosts()
        for host in hosts:
            host.extend_lease(until)

    def end_all(self, timeout: float) -> None:
        """Stop all tasks and start no new ones.

        Tasks that are still running after `timeout` seconds in total are killed.
        """
        with self._lock:
            self._stopping = True
            ids = list(self._tasks)
        self._end(self._take(ids), timeout, KILL_SECONDS)

    def start(self, spec: TaskSpec, *, restarting: bool) -> None:
        """Start a task. A running task with the same ID is stopped first."""
        with self._lock:
            if self._stopping:
                return
            slot = self._tasks[spec.id] = _Slot(spec.target, self._tasks.get(spec.id))
        self._executor.submit(self._start, spec, slot, restarting)

    def _start(self, spec: TaskSpec, slot: _Slot, restarting: bool) -> None:
        with log_context(spec.id.connector, spec.id.task):
            try:
                if slot.previous is not None:
                    self._end({spec.id: slot.previous}, self.graceful_seconds)
                with self._lock:
                    if restarting and not slot.abandoned:
                        self._listener.on_state(spec.id, State.RESTARTING)
                levels = dict(self._log_levels)
                self._metrics.starting(spec.id)
                configs = (
                    dict(self._resolve(spec.connector_config)),
                    dict(self._resolve(spec.task_config)),
                )
                values = [
                    value
                    for props in (spec.worker_props, *configs)
                    for value in props.values()
                    if value
                ]
                resolved = TaskSpec(
                    spec.id,
                    spec.worker_props,
                    *configs,
                    spec.target,
                    spec.start_number,
                    spec.plugins,
                    {name: level for name, level in levels.items() if level is not None},
                    hidden_in(values),
                )
                session = self._make_session(resolved)
                listener = partial(_process_message, self._listener, session, spec)
                with ExitStack() as closing, self._lock:
                    closing.callback(session.close)  # called unless the host is started
                    if slot.abandoned:
                        return
                    host = self._make_host(resolved, listener)
                    slot.host, slot.session, slot.previous = host, session, None
                    if self._log_levels != levels:  # the levels have changed since then
                        host.set_log_levels(self._log_levels)
                    host.extend_lease(self._lease_until)
                    if slot.target is not spec.target:
                        host.set_target_state(slot.target)
                    host.start()
                    closing.pop_all()
            except Exception as error:
                log.exception("failed to start task %s", spec.id)
                if not slot.abandoned:
                    self._listener.on_state(spec.id, State.FAILED, stack_trace(error))

    def stop(self, ids: Iterable[ConnectorTaskId]) -> Future[None]:
        """Stop tasks, and cancel those still running after `task.shutdown.graceful.timeout.ms`.

        The future completes when none of them is running.
        """
        slots = self._take(ids)
        if not slots:
            return done(None)
        return self._executor.submit(self._end, slots, self.graceful_seconds)

    def _take(self, ids: Iterable[ConnectorTaskId]) -> dict[ConnectorTaskId, _Slot]:
        with self._lock:
            slots = {task: self._tasks.pop(task) for task in set(ids) if task in self._tasks}
        for slot in slots.values():
            if slot.host is not None:
                slot.host.stop()  # request all stops before waiting for any of them
        return slots

    def _end(
        self,
        slots: Mapping[ConnectorTaskId, _Slot],
        timeout: float,
        write_timeout: float = WRITE_SECONDS,
    ) -> None:
        """Wait up to `timeout` seconds in total for tasks to end, and cancel the remaining tasks.

        Finally, wait up to `write_timeout` seconds for the offset writes of these tasks.
        """
        hosts: dict[ConnectorTaskId, TaskHost] = {}
        sessions: dict[ConnectorTaskId, TaskSession] = {}
        not_started = []
        for task, slot in slots.items():
            with self._lock:
                slot.abandoned = True
                run = slot.last_run()
                host = run.host
                if slot.host is None:
                    not_started.append(task)
            if host is not None:
                host.stop()
                hosts[task] = host
            if run.session is not None:
                sessions[task] = run.session
        deadline = self._clock.monotonic() + timeout
        late = {
            t: h
            for t, h in hosts.items()
            if not h.wait(max(0.0, deadline - self._clock.monotonic()))
        }
        for task, host in late.items():
            log.error("Graceful stop of task %s failed.", task, extra={"action": "task_cancelled"})
            host.cancel()
            self._listener.on_state(task, State.UNASSIGNED)
        deadline = self._clock.monotonic() + KILL_SECONDS
        for task, host in late.items():
            if not host.wait(max(0.0, deadline - self._clock.monotonic())):
                log.error("the process of task %s is still running after it was killed", task)
        for task in not_started:
            # must follow the final message from the previous run
            self._listener.on_state(task, State.UNASSIGNED)
        for session in sessions.values():
            session.close()
        deadline = self._clock.monotonic() + write_timeout
        for task, session in sessions.items():
            if not session.ended(max(0.0, deadline - self._clock.monotonic())):
                log.error("offset writes of task %s did not complete in time", task)


class TaskSession:
    """Offsets and shared services of one running task."""

    def __init__(self, offsets: SourceTaskSession, services: ServiceUser) -> None:
        self.offsets = offsets
        self.services = services

    def close(self) -> None:
        """Close the offsets session and release all services. May be called repeatedly."""
        self.offsets.close()
        self.services.close()

    def ended(self, timeout: float) -> bool:
        """Wait until all offset writes of the task are complete. Return False on timeout."""
        return self.offsets.ended(timeout)


def _process_message(
    listener: WorkerListener, session: TaskSession, spec: TaskSpec, message: FromTask
) -> Future[Any] | None:
    """Forward a task's events to the listener and its calls to its session."""
    task = spec.id
    match message:
        case Started() | Resumed():
            listener.on_state(task, State.RUNNING)
        case Paused():
            listener.on_state(task, State.PAUSED)
        case Stopped():
            listener.on_state(task, State.UNASSIGNED)
        case Failed(trace):
            session.close()
            listener.on_state(task, State.FAILED, trace)
        case Waits(waiting):
            listener.on_waiting(task, waiting)
        case Warns(warnings):
            listener.on_warnings(task, warnings)
        case RequestStop(reason):
            listener.on_stop_requested(task, spec.start_number, reason)
        case TopicUsed(topic):
            listener.on_topic_used(task, topic)
        case CopySourceOffsets():
            session.offsets.copy(message)
        case RequestService() | ReleaseService():
            session.services.notify(message)
        case AcquireService():
            return session.services.acquire(message)
        case _:
            return session.offsets.call(message)
    return None
