"""`StatusPublisher`: turns the worker's news into statuses, and tells the herder what concerns it."""

from __future__ import annotations

import logging
from collections.abc import Callable

from connect_py.api.errors import ConnectError
from connect_py.model import ConnectorTaskId, State, Status
from connect_py.storage.status_store import StatusStore
from connect_py.storage.status_table import StatusId

log = logging.getLogger(__name__)


class StatusPublisher:
    """The worker's listener. Any thread; returns at once."""

    def __init__(self, store: StatusStore, worker_id: str, *, track_topics: bool) -> None:
        self._store = store
        self._worker_id = worker_id
        self._track_topics = track_topics
        self.generation = 0  # of the worker group; the herder sets it when it takes the lead
        self.version_of: Callable[[StatusId], str | None] = _unknown  # the herder's
        self.on_tasks_wanted: Callable[[str], None] = _ignore  # the herder's: ask the connector for task configurations

    def publish(
        self,
        id: StatusId,  # noqa: A002 - Connect's word
        state: State,
        trace: str | None = None,
        *,
        gone: bool = False,
    ) -> None:
        """Write a status in this worker's name; the version of an instance that is gone is not known."""
        version = None if gone else self.version_of(id)
        try:
            self._store.put(id, Status(state, self._worker_id, self.generation, trace, version))
        except ConnectError as error:
            log.error("status %s of %s is not published: %s", state.value, id, error)

    def on_connector_startup(self, name: str) -> None:
        self.publish(name, State.RUNNING)
        self.on_tasks_wanted(name)

    def on_connector_pause(self, name: str) -> None:
        self.publish(name, State.PAUSED)

    def on_connector_resume(self, name: str) -> None:
        self.publish(name, State.RUNNING)
        self.on_tasks_wanted(name)

    def on_connector_stop(self, name: str) -> None:
        self.publish(name, State.STOPPED)

    def on_connector_failure(self, name: str, trace: str) -> None:
        self.publish(name, State.FAILED, trace)

    def on_connector_shutdown(self, name: str) -> None:
        self.publish(name, State.UNASSIGNED, gone=True)

    def on_task_startup(self, id: ConnectorTaskId) -> None:  # noqa: A002 - Connect's word
        self.publish(id, State.RUNNING)

    def on_task_pause(self, id: ConnectorTaskId) -> None:  # noqa: A002 - Connect's word
        self.publish(id, State.PAUSED)

    def on_task_resume(self, id: ConnectorTaskId) -> None:  # noqa: A002 - Connect's word
        self.publish(id, State.RUNNING)

    def on_task_failure(self, id: ConnectorTaskId, trace: str) -> None:  # noqa: A002 - Connect's word
        self.publish(id, State.FAILED, trace)

    def on_task_shutdown(self, id: ConnectorTaskId) -> None:  # noqa: A002 - Connect's word
        self.publish(id, State.UNASSIGNED, gone=True)

    def on_topic_used(self, id: ConnectorTaskId, topic: str) -> None:  # noqa: A002 - Connect's word
        if self._track_topics:
            try:
                self._store.put_topic(id, topic)
            except ConnectError as error:
                log.error("topic %s of %s is not recorded: %s", topic, id, error)

    def on_reconfiguration_requested(self, name: str) -> None:
        self.on_tasks_wanted(name)


def _unknown(_id: StatusId) -> str | None:
    return None


def _ignore(_name: str) -> None:
    return
