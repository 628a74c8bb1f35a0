"""Interface for the worker's reports to the herder."""

from __future__ import annotations

from typing import Protocol

from connect_py.model import ConnectorTaskId, State, Waiting
from connect_py.storage.status_table import StatusId


class WorkerListener(Protocol):
    """Receives events of connectors and tasks, to be published as statuses.

    Called on threads of the worker: concurrently for different connectors and tasks, in order for
    each of them. Implementations must not block and must not raise errors. No event follows the
    shutdown of a cancelled item.
    """

    def on_state(self, id: StatusId, state: State, trace: str | None = None) -> None:  # noqa: A002 - Connect's word
        """Handle a new state of a connector or task.

        RUNNING: it has started or resumed. PAUSED and STOPPED: it follows that target. FAILED: it
        failed with the error of `trace`, or its process exited; tasks of a failed connector are
        unaffected. RESTARTING: it has stopped for a restart that was requested by a user.
        UNASSIGNED: it was revoked from this worker, stopped as requested, or was cancelled because
        it did not stop.
        """

    def on_waiting(self, id: StatusId, waiting: Waiting | None) -> None:  # noqa: A002 - Connect's word
        """Handle a change of the waiting reason of a connector or task. None: it is not waiting."""

    def on_warnings(self, id: ConnectorTaskId, warnings: tuple[str, ...]) -> None:  # noqa: A002 - Connect's word
        """Handle a change of the warnings of a running task."""

    def on_topic_used(self, id: ConnectorTaskId, topic: str) -> None:  # noqa: A002 - Connect's word
        """Handle the first use of a topic by a task."""

    def on_stop_requested(self, id: ConnectorTaskId, start_number: int, reason: str) -> None:  # noqa: A002 - Connect's word
        """Handle the request of a task to stop its connector.

        `start_number` identifies its task set.
        """

    def on_reconfiguration_requested(self, name: str) -> None:
        """Handle the request of a connector to be asked for its task configurations again."""
