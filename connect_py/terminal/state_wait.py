"""`StateWait`: waits until a connector is in the requested state."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from connect_py.clock import Clock, SystemClock
from connect_py.terminal.connector_view import FAILED, ConnectorView, ItemView
from connect_py.terminal.rest_client import RestClient

PAUSE_SECONDS: Final = 0.25
# after a request, a worker may keep reporting the old status for this long
OLD_FAILURE_SECONDS: Final = 3.0


@dataclass(frozen=True, slots=True)
class WaitResult:
    """Outcome of a wait: the state was reached, an instance failed, or the wait timed out."""

    view: ConnectorView
    reached: bool
    failure: ItemView | None = None


class StateWait:
    """Polls the status of a connector until a deadline."""

    def __init__(self, worker: RestClient, seconds: float, clock: Clock | None = None) -> None:
        self._worker = worker
        self._seconds = seconds
        self._clock = clock or SystemClock()

    def wait(self, name: str, state: str, *, failed_before: bool = False) -> WaitResult:
        """Wait until the connector and its tasks are RUNNING, PAUSED, or STOPPED.

        A running connector has at least one task. A stopped connector has none.

        Args:
            name: Name of the connector.
            state: The requested state.
            failed_before: True if the connector may have failed before the request. In that case,
                failures are ignored for 3 seconds.
        """
        start = self._clock.monotonic()
        while True:
            view = ConnectorView.of(name, {}, self._worker.status(name))
            if _is(view, state):
                return WaitResult(view, reached=True)
            elapsed = self._clock.monotonic() - start
            failure = next((item for item in view.items() if item.state == FAILED), None)
            if failure is not None and (not failed_before or elapsed >= OLD_FAILURE_SECONDS):
                return WaitResult(view, reached=False, failure=failure)
            if elapsed >= self._seconds:
                return WaitResult(view, reached=False)
            self._clock.sleep(PAUSE_SECONDS)


def _is(view: ConnectorView, state: str) -> bool:
    if state == "STOPPED":
        return view.connector.state == state and not view.tasks
    has_tasks = bool(view.tasks) or state == "PAUSED"
    return has_tasks and all(item.state == state for item in view.items())
