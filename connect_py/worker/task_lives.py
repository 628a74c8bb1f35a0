"""`TaskLives`: the tasks of a worker, each with one life at a time, from its start to the end of
its process."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Final, TypeAlias

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
    Answer,
    CopySourceOffsets,
    Failed,
    FenceZombies,
    FromTask,
    MakeOffsetKeys,
    Paused,
    ReadSourceOffsets,
    ReleaseService,
    RequestService,
    RequestStop,
    Resumed,
    Started,
    Stopped,
    TaskSpec,
    TopicUsed,
    VerifyTask,
    Waits,
    Warns,
    WriteSourceOffsets,
)
from connect_py.worker.service_registry import ServiceUser
from connect_py.worker.source_task_session import SourceTaskSession
from connect_py.worker.task_host import TaskHost, TaskNews
from connect_py.worker.worker_listener import WorkerListener

KILL_SECONDS: Final = 5.0  # for a killed process to end
WRITE_SECONDS: Final = 35.0  # for offsets on their way: the client gives up after 30

Props: TypeAlias = Mapping[str, str]
ConfigResolver: TypeAlias = Callable[[Props], Props]
"""Replaces the placeholders of config providers in a configuration. ConfigError when a provider
cannot read."""
TaskHostFactory: TypeAlias = Callable[[TaskSpec, TaskNews], TaskHost]

log = logging.getLogger(__name__)


class _Slot:
    """A place for one life of one task: filled once the host is made, unless it was given up
    before."""

    def __init__(self, target: TargetState, earlier: _Slot | None) -> None:
        self.host: TaskHost | None = None
        self.session: TaskSession | None = None
        self.abandoned = False
        self.target = target
        # the life before this one, which ends before this one's host is made
        self.earlier = earlier

    def last_life(self) -> _Slot:
        """Return this run of the task, or the earlier run that may still be ending in its place."""
        return self if self.host is not None or self.earlier is None else self.earlier.last_life()


class TaskLives:
    """Every method may be called from any thread and returns at once, but for `end_all`."""

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
        """Prepare; nothing runs yet.

        Args:
            executor: Where tasks are started and stopped; the owner closes it.
            resolve: Replaces placeholders in connector and task configurations.
            graceful_seconds: That tasks have to stop by themselves.
            make_host: Where a task runs.
            make_session: What the worker keeps for a task; its configuration comes resolved.
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
        """Tasks that were started and have neither ended as asked nor been cancelled; failed ones
        included."""
        with self._lock:
            return frozenset(self._tasks)

    def reports(self) -> dict[ConnectorTaskId, TaskReport]:
        """The latest measurements of each task."""
        with self._lock:
            return {
                task: slot.host.report
                for task, slot in self._tasks.items()
                if slot.host is not None
            }

    def _hosts(self) -> list[TaskHost]:
        return [slot.host for slot in self._tasks.values() if slot.host is not None]

    def set_target_state(self, name: str, target: TargetState) -> None:
        """Tell the tasks of a connector."""
        with self._lock:
            slots = [slot for task, slot in self._tasks.items() if task.connector == name]
            for slot in slots:
                slot.target = target
            hosts = [slot.host for slot in slots if slot.host is not None]
        for host in hosts:
            host.set_target_state(target)

    def set_log_levels(self, levels: Mapping[str, int | None]) -> None:
        """See `Worker`."""
        with self._lock:
            self._log_levels |= levels
            hosts = self._hosts()
        for host in hosts:
            host.set_log_levels(levels)

    def extend_lease(self, until: float | None) -> None:
        """See `Worker`."""
        with self._lock:
            self._lease_until = until
            hosts = self._hosts()
        for host in hosts:
            host.extend_lease(until)

    def end_all(self, timeout: float) -> None:
        """Start no more; wait for all tasks to end, `timeout` seconds together, then kill those
        that are left."""
        with self._lock:
            self._stopping = True
            ids = list(self._tasks)
        self._end(self._take(ids), timeout, KILL_SECONDS)

    def start(self, spec: TaskSpec, *, restarting: bool) -> None:
        """Start a task; one of that id that runs here is stopped first."""
        with self._lock:
            if self._stopping:
                return
            slot = self._tasks[spec.id] = _Slot(spec.target, self._tasks.get(spec.id))
        self._executor.submit(self._start, spec, slot, restarting)

    def _start(self, spec: TaskSpec, slot: _Slot, restarting: bool) -> None:
        with log_context(spec.id.connector, spec.id.task):
            try:
                if slot.earlier is not None:
                    self._end({spec.id: slot.earlier}, self.graceful_seconds)
                with self._lock:
                    if restarting and not slot.abandoned:
                        self._listener.on_state(spec.id, State.RESTARTING)
                levels = dict(self._log_levels)
                self._metrics.starting(spec.id)
                configs = (
                    dict(self._resolve(spec.connector_config)),
                    dict(self._resolve(spec.task_config)),
                )
                texts = [
                    text
                    for props in (spec.worker_props, *configs)
                    for text in props.values()
                    if text
                ]
                resolved = TaskSpec(
                    spec.id,
                    spec.worker_props,
                    *configs,
                    spec.target,
                    spec.start_number,
                    spec.plugins,
                    {name: level for name, level in levels.items() if level is not None},
                    hidden_in(texts),
                )
                session = self._make_session(resolved)
                try:
                    host = self._make_host(resolved, partial(_hear, self._listener, session, spec))
                except BaseException:
                    session.close()  # no other code holds it
                    raise
                with self._lock:
                    if slot.abandoned:
                        session.close()
                        return
                    slot.host, slot.session, slot.earlier = host, session, None
                    target = slot.target
                    if self._log_levels != levels:  # they changed meanwhile
                        host.set_log_levels(self._log_levels)
                    host.extend_lease(self._lease_until)
                    host.start()
                if target is not spec.target:
                    host.set_target_state(target)
            except Exception as error:
                log.exception("task %s could not be started", spec.id)
                if not slot.abandoned:
                    self._listener.on_state(spec.id, State.FAILED, stack_trace(error))

    def stop(self, ids: Iterable[ConnectorTaskId]) -> Future[None]:
        """Ask all of these to stop at once; cancel what is left after
        `task.shutdown.graceful.timeout.ms`.

        Done when none of them runs any more, however it ended.
        """
        slots = self._take(ids)
        if not slots:
            return done(None)
        return self._executor.submit(self._end, slots, self.graceful_seconds)

    def _take(self, ids: Iterable[ConnectorTaskId]) -> dict[ConnectorTaskId, _Slot]:
        with self._lock:
            taken = {task: self._tasks.pop(task) for task in set(ids) if task in self._tasks}
        for slot in taken.values():
            if slot.host is not None:
                slot.host.stop()  # all are asked before anybody waits
        return taken

    def _end(
        self,
        slots: Mapping[ConnectorTaskId, _Slot],
        timeout: float,
        write_timeout: float = WRITE_SECONDS,
    ) -> None:
        """Wait for tasks to end, `timeout` seconds together; then cancel those that are left.

        What the worker is still writing for them is waited for, too, for `write_timeout` seconds.
        """
        hosts: dict[ConnectorTaskId, TaskHost] = {}
        sessions: dict[ConnectorTaskId, TaskSession] = {}
        unborn = []
        for task, slot in slots.items():
            with self._lock:
                slot.abandoned = True
                life = slot.last_life()
                host = life.host
                if slot.host is None:
                    unborn.append(task)
            if host is not None:
                host.stop()
                hosts[task] = host
            if life.session is not None:
                sessions[task] = life.session
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
                log.error("the process of task %s is still there after it was killed", task)
        for task in unborn:
            # last, when nothing more is heard of a life before
            self._listener.on_state(task, State.UNASSIGNED)
        for session in sessions.values():
            session.close()
        deadline = self._clock.monotonic() + write_timeout
        for task, session in sessions.items():
            if not session.ended(max(0.0, deadline - self._clock.monotonic())):
                log.error("offsets of task %s may still be written after its end", task)


class TaskSession:
    """What the worker keeps for one life of a task: its offsets, and the services that it uses."""

    def __init__(self, offsets: SourceTaskSession, services: ServiceUser) -> None:
        self.offsets = offsets
        self.services = services

    def close(self) -> None:
        """Let go of everything. Any number of times; returns at once."""
        self.offsets.close()
        self.services.close()

    def ended(self, timeout: float) -> bool:
        """See `SourceTaskSession`."""
        return self.offsets.ended(timeout)


def _hear(
    listener: WorkerListener,
    session: TaskSession,
    spec: TaskSpec,
    message: FromTask,
    reply: Callable[[Answer], None],
) -> None:
    """Pass on what a task says: news to the listener, requests and questions to what the worker
    keeps for it."""
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
            session.services.take(message)
        case AcquireService():
            session.services.answer(message, reply)
        case (
            ReadSourceOffsets()
            | WriteSourceOffsets()
            | MakeOffsetKeys()
            | FenceZombies()
            | VerifyTask()
        ):
            session.offsets.answer(message, reply)
