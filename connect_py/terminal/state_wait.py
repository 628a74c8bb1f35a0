"""`StateWait`: waits until a connector is in the state that a command asked for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from connect_py.clock import Clock, SystemClock
from connect_py.terminal.connector_view import FAILED, ConnectorView, ItemView
from connect_py.terminal.rest_client import RestClient

PAUSE_SECONDS: Final = 0.25
OLD_FAILURE_SECONDS: Final = 3.0  # a status of before the request may still be shown so long


@dataclass(frozen=True, slots=True)
class WaitResult:
    """How a wait ended: all is as wanted, an item failed, or neither in time."""

    view: ConnectorView
    reached: bool
    failed: ItemView | None = None


class StateWait:
    """Looks at the status of a connector until a deadline."""

    def __init__(self, worker: RestClient, seconds: float, clock: Clock | None = None) -> None:
        self._worker = worker
        self._seconds = seconds
        self._clock = clock or SystemClock()

    def wait(self, name: str, state: str, *, failed_before: bool = False) -> WaitResult:
        """Wait until the connector and its tasks are in a state: RUNNING, PAUSED or STOPPED.

        A connector that runs has a task; a stopped one has none.

        Args: name: The connector. state: What a user asked for. failed_before: The connector may
            have failed before the request: failures count only after 3 seconds.
        """
        begun = self._clock.monotonic()
        while True:
            view = ConnectorView.of(name, {}, self._worker.status(name))
            if _is(view, state):
                return WaitResult(view, reached=True)
            waited = self._clock.monotonic() - begun
            failed = next((item for item in view.items() if item.state == FAILED), None)
            if failed is not None and (not failed_before or waited >= OLD_FAILURE_SECONDS):
                return WaitResult(view, reached=False, failed=failed)
            if waited >= self._seconds:
                return WaitResult(view, reached=False)
            self._clock.sleep(PAUSE_SECONDS)


def _is(view: ConnectorView, state: str) -> bool:
    if state == "STOPPED":
        return view.connector.state == state and not view.tasks
    has_tasks = bool(view.tasks) or state == "PAUSED"
    return has_tasks and all(item.state == state for item in view.items())
