"""What the worker reports to the owner of cluster state."""

from __future__ import annotations

from typing import Protocol

from connect_py.model import ConnectorTaskId, State, Waiting
from connect_py.storage.status_table import StatusId


class WorkerListener(Protocol):
    """News of connectors and tasks, to be published as statuses.

    Called on threads of the worker, several at once for different connectors and tasks, in order
    for one of them. An implementation returns at once (puts the news on a queue) and raises
    nothing. After a cancelled item's shutdown nothing more is reported of it.
    """

    def on_state(self, id: StatusId, state: State, trace: str | None = None) -> None:  # noqa: A002 - Connect's word
        """A connector or task reached a state.

        RUNNING: it has started, or goes on after a pause or a stop. PAUSED and STOPPED: it noticed
        that target. FAILED: it ended with the error of `trace`, or its process died; tasks of a
        failed connector are not touched. RESTARTING: a user asked for a restart, and it has stopped
        for that. UNASSIGNED: it was taken from this worker, ended as asked, or was cancelled
        because it did not.
        """

    def on_waiting(self, id: StatusId, waiting: Waiting | None) -> None:  # noqa: A002 - Connect's word
        """What a running connector or task waits for has changed; None: nothing."""

    def on_warnings(self, id: ConnectorTaskId, warnings: tuple[str, ...]) -> None:  # noqa: A002 - Connect's word
        """The warnings of a running task have changed."""

    def on_topic_used(self, id: ConnectorTaskId, topic: str) -> None:  # noqa: A002 - Connect's word
        """The task read or wrote this topic for the first time in its life."""

    def on_stop_requested(self, id: ConnectorTaskId, start_number: int, reason: str) -> None:  # noqa: A002 - Connect's word
        """A task of the set that was started under this number wants its connector stopped."""

    def on_reconfiguration_requested(self, name: str) -> None:
        """The connector wants to be asked for its task configurations again."""
