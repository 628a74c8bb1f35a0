"""What the worker reports to the owner of cluster state."""

from __future__ import annotations

from typing import Protocol

from connect_py.model import ConnectorTaskId, Waiting


class WorkerListener(Protocol):
    """News of connectors and tasks, to be published as statuses.

    Called on threads of the worker, several at once for different connectors and tasks, in order for one of them. An
    implementation returns at once (puts the news on a queue) and raises nothing. After a cancelled item's shutdown
    nothing more is reported of it.
    """

    def on_connector_startup(self, name: str) -> None:
        """The connector runs: RUNNING."""

    def on_connector_pause(self, name: str) -> None:
        """The connector was stopped because its target is PAUSED, or waits for it to be lifted: PAUSED."""

    def on_connector_resume(self, name: str) -> None:
        """The connector runs again after a pause or stop: RUNNING."""

    def on_connector_stop(self, name: str) -> None:
        """The connector was stopped because its target is STOPPED: STOPPED."""

    def on_connector_failure(self, name: str, trace: str) -> None:
        """The connector cannot go on: FAILED. Its tasks are not touched."""

    def on_connector_waiting(self, name: str, waiting: Waiting | None) -> None:
        """What the running connector waits for has changed; None: nothing."""

    def on_connector_shutdown(self, name: str) -> None:
        """The connector was taken from this worker: UNASSIGNED."""

    def on_connector_restart(self, name: str) -> None:
        """A user asked for a restart, and the connector has stopped for it: RESTARTING."""

    def on_task_startup(self, id: ConnectorTaskId) -> None:  # noqa: A002 - Connect's word
        """The task has started: RUNNING."""

    def on_task_pause(self, id: ConnectorTaskId) -> None:  # noqa: A002 - Connect's word
        """The task noticed its target PAUSED: PAUSED."""

    def on_task_resume(self, id: ConnectorTaskId) -> None:  # noqa: A002 - Connect's word
        """The task noticed its target STARTED after a pause: RUNNING."""

    def on_task_failure(self, id: ConnectorTaskId, trace: str) -> None:  # noqa: A002 - Connect's word
        """The task ended with an error, or its process died: FAILED."""

    def on_task_waiting(self, id: ConnectorTaskId, waiting: Waiting | None) -> None:  # noqa: A002 - Connect's word
        """What the running task waits for has changed; None: nothing."""

    def on_task_shutdown(self, id: ConnectorTaskId) -> None:  # noqa: A002 - Connect's word
        """The task ended as asked, or was cancelled because it did not: UNASSIGNED."""

    def on_task_restart(self, id: ConnectorTaskId) -> None:  # noqa: A002 - Connect's word
        """A user asked for a restart, and the task has stopped for it: RESTARTING."""

    def on_topic_used(self, id: ConnectorTaskId, topic: str) -> None:  # noqa: A002 - Connect's word
        """The task read or wrote this topic for the first time in its life."""

    def on_reconfiguration_requested(self, name: str) -> None:
        """The connector wants to be asked for its task configurations again."""
