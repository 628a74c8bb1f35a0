"""`TargetStateRequests`: pauses, resumes, and stops connectors for users and tasks."""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import Future

from connect_py.api.errors import NotFoundError
from connect_py.futures import failed
from connect_py.herder.connector_configs import ConnectorConfigs
from connect_py.herder.local_work.task_set import is_current
from connect_py.herder.requests.request_router import RequestRouter
from connect_py.herder.thread.herder_thread import Startup
from connect_py.herder.thread.stage_board import StageBoard
from connect_py.model import TargetState
from connect_py.storage.config_store import ConfigStore

log = logging.getLogger(__name__)

UNKNOWN_CONNECTOR = "Unknown connector {}"


class TargetStateRequests:
    """Writes target states to the config topic.

    Any worker may pause or resume a connector. Only the leader may stop a connector.
    """

    def __init__(
        self,
        connectors: ConnectorConfigs,
        store: ConfigStore,
        router: RequestRouter,
        stages: StageBoard,
        startup: Startup,
    ) -> None:
        self._connectors = connectors
        self._store = store
        self._router = router
        self._stages = stages
        self._startup = startup

    def pause(self, name: str) -> None:
        """Pause a connector. Raise NotFoundError if it does not exist."""
        self._put(name, TargetState.PAUSED)

    def resume(self, name: str) -> None:
        """Resume a connector. Raise NotFoundError if it does not exist."""
        self._put(name, TargetState.STARTED)

    def _put(self, name: str, state: TargetState) -> None:
        self._connectors.state_with(name, UNKNOWN_CONNECTOR)
        self._store.put_target_state(name, state)

    def stop(self, name: str) -> Future[None]:
        """Stop a connector and its tasks."""

        def stop() -> None:
            self._connectors.state_with(name, UNKNOWN_CONNECTOR)
            self._put_stop(name, None)

        if not self._connectors.exists(name) and self._startup.complete.is_set():
            return failed(NotFoundError(UNKNOWN_CONNECTOR.format(name)))
        return self._router.submit_to_leader(stop)

    def stop_for_task(self, name: str, start_number: int, reason: str) -> None:
        """Stop a connector at the request of one of its tasks.

        The request is ignored if the connector has been changed, stopped, paused, or removed since
        the task was started. Called on the thread that changes the config topic.
        """
        if is_current(self._connectors.state(), name, start_number):
            log.info(
                "stopping connector %s at the request of its task: %s",
                name,
                reason,
                extra={"action": "stop_requested"},
            )
            self._put_stop(name, reason)

    def _put_stop(self, name: str, reason: str | None) -> None:
        with self._stages.stage(
            f"writing the target state of connector {name} to the config topic"
        ):
            self._store.put_stop(name, reason)


class TaskStopRequests:
    """Forwards stop requests from this worker's tasks. Used only on the herder's thread."""

    def __init__(
        self, connectors: ConnectorConfigs, send: Callable[[str, int, str], Future[None]]
    ) -> None:
        """Create the component. `send` requests that the leader stop a connector."""
        self._connectors = connectors
        self._send = send
        self._in_progress: set[str] = set()  # connectors with a pending stop request

    def handle(self, name: str, start_number: int, reason: str) -> None:
        """Forward a task's request, unless a request for its connector is already in progress.

        A task repeats its request as long as it is running.
        """
        if name in self._in_progress or not is_current(
            self._connectors.state(), name, start_number
        ):
            return
        self._in_progress.add(name)

        def ended(stop: Future[None]) -> None:
            self._in_progress.discard(name)
            if not stop.cancelled() and stop.exception() is not None:
                log.warning(
                    "failed to stop connector %s at the request of its task: %s",
                    name,
                    stop.exception(),
                )

        self._send(name, start_number, reason).add_done_callback(ended)
