"""Interface through which the worker notifies the herder."""

from __future__ import annotations

from typing import Protocol

from connect_py.model import ConnectorTaskId, State, Waiting
from connect_py.storage.status_table import StatusId


class WorkerListener(Protocol):
    """Receives events from connectors and tasks, and publishes them as statuses.

    Methods are called on the worker's threads. The calls for each connector or task are ordered;
    calls for different connectors and tasks may be concurrent. Methods must not block or raise
    errors. No event follows the UNASSIGNED event of a canceled connector or task.
    """

    def on_state(self, id: StatusId, state: State, trace: str | None = None) -> None:  # noqa: A002 - named as in Kafka Connect
        """Handle a new state of a connector or task.

        - RUNNING: It has started or resumed.
        - PAUSED, STOPPED: It has reached this target state.
        - FAILED: It has failed with the error in `trace`, or its process has exited. The tasks of a
          failed connector are not affected.
        - RESTARTING: It has stopped for a restart that a user requested.
        - UNASSIGNED: It has stopped, has been revoked from this worker, or was canceled because it
          did not stop.
        """

    def on_waiting(self, id: StatusId, waiting: Waiting | None) -> None:  # noqa: A002 - named as in Kafka Connect
        """Handle a new reason why a connector or task waits, or None if it no longer waits."""

    def on_warnings(self, id: ConnectorTaskId, warnings: tuple[str, ...]) -> None:  # noqa: A002 - named as in Kafka Connect
        """Handle a change in the warnings of a running task."""

    def on_topic_used(self, id: ConnectorTaskId, topic: str) -> None:  # noqa: A002 - named as in Kafka Connect
        """Handle the first use of a topic by a task."""

    def on_stop_requested(self, id: ConnectorTaskId, start_number: int, reason: str) -> None:  # noqa: A002 - named as in Kafka Connect
        """Handle a task's request to stop its connector.

        `start_number` is the config topic offset of the record that last started or changed the
        connector before this task was started.
        """

    def on_reconfiguration_requested(self, name: str) -> None:
        """Handle a connector's request to reconfigure its tasks."""
