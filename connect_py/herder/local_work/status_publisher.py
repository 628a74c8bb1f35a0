"""`StatusPublisher`: publishes worker events as statuses, and forwards requests from tasks."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import replace

from connect_py.api.errors import ConnectError
from connect_py.clock import Clock
from connect_py.herder.local_work.work_assignment import WorkAssignment
from connect_py.model import ConnectorTaskId, State, Status, Waiting
from connect_py.secret_mask import masked
from connect_py.storage.status_store import StatusStore
from connect_py.storage.status_table import StatusId

log = logging.getLogger(__name__)

REPAIR_SECONDS = 3.0  # maximum expected delay until a written status is read back


class StatusPublisher:
    """Implements `WorkerListener`. Thread-safe; never blocks."""

    def __init__(
        self,
        store: StatusStore,
        worker_id: str,
        assignment: WorkAssignment,
        clock: Clock,
        *,
        track_topics: bool,
        version_of: Callable[[StatusId], str | None],
        on_tasks_requested: Callable[[str], None],
        on_stop_requested: Callable[[str, int, str], None],
    ) -> None:
        """Create the publisher.

        Args:
            track_topics: True to record the topics that tasks use.
            version_of: Returns the plugin version of a connector or task.
            on_tasks_requested: Requests task configurations from a connector. Must not block.
            on_stop_requested: Stops a connector at the request of one of its tasks. Must not block.
        """
        self._store = store
        self._worker_id = worker_id
        self._assignment = assignment
        self._clock = clock
        self._track_topics = track_topics
        self._version_of = version_of
        self._on_tasks_requested = on_tasks_requested
        self._on_stop_requested = on_stop_requested
        # last published state of each running connector and task, with its stack trace and time
        self._last: dict[StatusId, tuple[State, str | None, float]] = {}
        self._waits: dict[StatusId, Waiting] = {}
        self._warnings: dict[StatusId, tuple[str, ...]] = {}

    def publish(self, id: StatusId, state: State, trace: str | None = None) -> None:  # noqa: A002 - named as in Kafka Connect
        """Write the status of a connector or task on this worker.

        The version is omitted from UNASSIGNED statuses.
        """
        if not self._assignment.may_publish():
            log.info(
                "not publishing status %s of %s: this worker is no longer a member of the group",
                state.value,
                id,
            )
            # the connector or task is being stopped; its next start publishes a status again
            self._last.pop(id, None)
            self._forget(id)
            return
        trace = None if trace is None else masked(trace)
        ended = state is State.UNASSIGNED
        if ended:
            self._last.pop(id, None)
        else:
            self._last[id] = state, trace, self._clock.monotonic()
        if ended or state in (State.FAILED, State.RESTARTING):
            self._forget(id)
        waiting = self._waits.get(id) if state is State.RUNNING else None
        warnings = self._warnings.get(id, ()) if state is State.RUNNING else ()
        version = None if ended else self._version_of(id)
        try:
            self._store.put(
                id,
                Status(
                    state,
                    self._worker_id,
                    self._assignment.generation(),
                    trace,
                    version,
                    waiting,
                    warnings,
                ),
            )
        except ConnectError as error:
            log.error("failed to publish status %s of %s: %s", state.value, id, error)

    def repair(self, running: Iterable[StatusId]) -> None:
        """Republish statuses that a former owner or a leader has overwritten."""
        for id in running:  # noqa: A001 - named as in Kafka Connect
            last, current = self._last.get(id), self._store.get(id)
            if last is None or current is None:
                continue
            state, trace, published_at = last
            if current.worker_id == self._worker_id and current.state is state:
                continue
            if self._clock.monotonic() - published_at > REPAIR_SECONDS:
                log.warning(
                    "republishing status %s of %s, which was overwritten with %s by %s",
                    state.value,
                    id,
                    current.state.value,
                    current.worker_id,
                )
                self.publish(id, state, trace)

    def on_waiting(self, id: StatusId, waiting: Waiting | None) -> None:  # noqa: A002 - named as in Kafka Connect
        """Publish the reason why a running connector or task is waiting."""
        if waiting is None:
            self._waits.pop(id, None)
        else:
            self._waits[id] = replace(waiting, reason=masked(waiting.reason))
        self._publish_again(id)

    def on_warnings(self, id: ConnectorTaskId, warnings: tuple[str, ...]) -> None:  # noqa: A002 - named as in Kafka Connect
        """Publish the warnings of a running task."""
        self._warnings[id] = tuple(map(masked, warnings))
        self._publish_again(id)

    def _publish_again(self, id: StatusId) -> None:  # noqa: A002 - named as in Kafka Connect
        last = self._last.get(id)
        if last is not None and last[0] is State.RUNNING:
            self.publish(id, State.RUNNING)

    def _forget(self, id: StatusId) -> None:  # noqa: A002 - named as in Kafka Connect
        self._waits.pop(id, None)
        self._warnings.pop(id, None)

    def on_state(self, id: StatusId, state: State, trace: str | None = None) -> None:  # noqa: A002 - named as in Kafka Connect
        self.publish(id, state, trace)
        if state is State.RUNNING and isinstance(id, str):
            self._on_tasks_requested(id)

    def on_topic_used(self, id: ConnectorTaskId, topic: str) -> None:  # noqa: A002 - named as in Kafka Connect
        if self._track_topics:
            try:
                self._store.put_topic(id, topic)
            except ConnectError as error:
                log.error("failed to record topic %s for %s: %s", topic, id, error)

    def on_stop_requested(self, id: ConnectorTaskId, start_number: int, reason: str) -> None:  # noqa: A002 - named as in Kafka Connect
        self._on_stop_requested(id.connector, start_number, masked(reason))

    def on_reconfiguration_requested(self, name: str) -> None:
        self._on_tasks_requested(name)


def worker_id_of(url: str) -> str:
    """Return the worker ID for an advertised URL. The ID consists of the host and port."""
    return url.partition("://")[2].rstrip("/")
