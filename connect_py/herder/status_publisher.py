"""`StatusPublisher`: turns the worker's news into statuses, and tells the herder what concerns
it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import replace

from connect_py.api.errors import ConnectError
from connect_py.clock import Clock, SystemClock
from connect_py.model import ConnectorTaskId, State, Status, Waiting
from connect_py.secret_mask import masked
from connect_py.storage.status_store import StatusStore
from connect_py.storage.status_table import StatusId

log = logging.getLogger(__name__)

REPAIR_SECONDS = 3.0  # a status may take so long to be read back


class StatusPublisher:
    """The worker's listener. Any thread; returns at once."""

    def __init__(
        self, store: StatusStore, worker_id: str, *, track_topics: bool, clock: Clock | None = None
    ) -> None:
        self._store = store
        self._clock = clock or SystemClock()
        self._worker_id = worker_id
        self._track_topics = track_topics
        self.generation = 0  # of the worker group; the herder sets it with each assignment
        # the herder's: False once this worker's lease has ended
        self.may_publish: Callable[[], bool] = lambda: True
        self._last: dict[
            StatusId, tuple[State, str | None, float]
        ] = {}  # what was said of what runs here, and when
        self._waits: dict[StatusId, Waiting] = {}
        self._warnings: dict[StatusId, tuple[str, ...]] = {}
        self.version_of: Callable[[StatusId], str | None] = lambda _: None  # the herder's
        # the herder's: ask the connector for task configurations
        self.on_tasks_wanted: Callable[[str], None] = lambda _: None
        # the herder's, as tasks ask for it
        self.on_stop_wanted: Callable[[str, int, str], None] = lambda *_: None

    def publish(self, id: StatusId, state: State, trace: str | None = None) -> None:  # noqa: A002 - Connect's word
        """Write a status in this worker's name; the version of an instance that is gone is not
        known."""
        if not self.may_publish():
            log.info(
                "status %s of %s is not published: this worker lost its place in the group",
                state.value,
                id,
            )
            self._last.pop(id, None)  # it ends here; when it starts again, that is news
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
        version = None if ended else self.version_of(id)
        try:
            self._store.put(
                id,
                Status(state, self._worker_id, self.generation, trace, version, waiting, warnings),
            )
        except ConnectError as error:
            log.error("status %s of %s is not published: %s", state.value, id, error)

    def repair(self, running: Iterable[StatusId]) -> None:
        """Say again what was spoken over: by a worker that lost these late, or by a leader in this
        worker's name."""
        for id in running:  # noqa: A001 - Connect's word
            last, known = self._last.get(id), self._store.get(id)
            if last is None or known is None:
                continue
            state, trace, said = last
            if known.worker_id == self._worker_id and known.state is state:
                continue
            if self._clock.monotonic() - said > REPAIR_SECONDS:
                log.warning(
                    "status %s of %s is published again: %s of %s stands there",
                    state.value,
                    id,
                    known.state.value,
                    known.worker_id,
                )
                self.publish(id, state, trace)

    def on_waiting(self, id: StatusId, waiting: Waiting | None) -> None:  # noqa: A002 - Connect's word
        """Say what a connector or a task waits for, beside RUNNING."""
        if waiting is None:
            self._waits.pop(id, None)
        else:
            self._waits[id] = replace(waiting, reason=masked(waiting.reason))
        self._publish_again(id)

    def on_warnings(self, id: ConnectorTaskId, warnings: tuple[str, ...]) -> None:  # noqa: A002 - Connect's word
        """Publish the warnings of a task, next to RUNNING."""
        self._warnings[id] = tuple(map(masked, warnings))
        self._publish_again(id)

    def _publish_again(self, id: StatusId) -> None:  # noqa: A002 - Connect's word
        last = self._last.get(id)
        if last is not None and last[0] is State.RUNNING:
            self.publish(id, State.RUNNING)

    def _forget(self, id: StatusId) -> None:  # noqa: A002 - Connect's word
        self._waits.pop(id, None)
        self._warnings.pop(id, None)

    def on_state(self, id: StatusId, state: State, trace: str | None = None) -> None:  # noqa: A002 - Connect's word
        self.publish(id, state, trace)
        if state is State.RUNNING and isinstance(id, str):
            self.on_tasks_wanted(id)

    def on_topic_used(self, id: ConnectorTaskId, topic: str) -> None:  # noqa: A002 - Connect's word
        if self._track_topics:
            try:
                self._store.put_topic(id, topic)
            except ConnectError as error:
                log.error("topic %s of %s is not recorded: %s", topic, id, error)

    def on_stop_requested(self, id: ConnectorTaskId, start_number: int, reason: str) -> None:  # noqa: A002 - Connect's word
        self.on_stop_wanted(id.connector, start_number, masked(reason))

    def on_reconfiguration_requested(self, name: str) -> None:
        self.on_tasks_wanted(name)


def worker_id_of(url: str) -> str:
    """How statuses name the worker of an advertised URL: host and port."""
    return url.partition("://")[2].rstrip("/")
