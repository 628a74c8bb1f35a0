"""`RestartRequests`: restarts connectors and tasks."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import TypeVar

from connect_py.api.errors import NotFoundError
from connect_py.clock import Clock
from connect_py.herder.connector_configs import ConnectorConfigs
from connect_py.herder.herder import ConnectorStatus, Stage
from connect_py.herder.local_work.work_runner import WorkRunner
from connect_py.herder.requests.request_router import RequestRouter
from connect_py.herder.thread.futures import translated
from connect_py.herder.thread.herder_executor import HerderExecutor
from connect_py.herder.thread.stage_board import StageBoard
from connect_py.model import ConnectorTaskId, State, Status
from connect_py.storage.config_state import RestartRequest
from connect_py.storage.config_store import ConfigStore
from connect_py.storage.status_store import StatusStore

T = TypeVar("T")

UNKNOWN_CONNECTOR = "Unknown connector: {}"


@dataclass(frozen=True, slots=True)
class NotFoundMessages:
    """Error messages for single restarts. They differ between standalone and distributed mode."""

    connector: str = UNKNOWN_CONNECTOR
    task: str = "Unknown task: {}"


@dataclass(frozen=True, slots=True)
class RestartPlan:
    """Connector and tasks to restart, and the statuses to return in the response.

    The status is RESTARTING for a connector or task that will be restarted, and unchanged for any
    other.
    """

    connector: bool
    tasks: tuple[ConnectorTaskId, ...]
    connector_status: Status
    task_statuses: Mapping[int, Status]


class RestartRequests:
    """Restarts single connectors and tasks, or a connector together with its tasks.

    A single restart is performed by the worker that runs the connector or task. For a combined
    restart, a request is written to the config topic, and each worker restarts the connector and
    the tasks that it runs.
    """

    def __init__(
        self,
        connectors: ConnectorConfigs,
        store: ConfigStore,
        statuses: StatusStore,
        work: WorkRunner,
        executor: HerderExecutor,
        router: RequestRouter,
        stages: StageBoard,
        clock: Clock,
        messages: NotFoundMessages,
    ) -> None:
        self._connectors = connectors
        self._store = store
        self._statuses = statuses
        self._work = work
        self._executor = executor
        self._router = router
        self._stages = stages
        self._clock = clock
        self._messages = messages
        self._lock = threading.Lock()
        self._pending: dict[str, RestartRequest] = {}  # from the config topic, by connector

    # User requests

    def restart_connector(self, name: str) -> Future[None]:
        """See `Herder.restart_connector`."""

        def restart() -> Future[None]:
            self._connectors.state_with(name, self._messages.connector)
            started = self._work.start_connector(name)
            stage = Stage("starting the connector", self._clock.time_ms())
            return translated(started, f"Failed to start connector: {name}", stage)

        return self._if_exists(
            name, lambda: self._router.submit_to_owner(name, restart), self._messages.connector
        )

    def restart_task(self, task: ConnectorTaskId) -> Future[None]:
        """See `Herder.restart_task`."""

        def restart() -> None:
            state = self._connectors.state_with(task.connector, self._messages.connector)
            if task not in state.tasks(task.connector):
                raise NotFoundError(self._messages.task.format(task))
            self._work.start_task(task)

        return self._if_exists(
            task.connector,
            lambda: self._router.submit_to_owner(task, restart),
            self._messages.connector,
        )

    def restart_connector_and_tasks(
        self, name: str, *, include_tasks: bool, only_failed: bool
    ) -> Future[ConnectorStatus]:
        """See `Herder.restart_connector_and_tasks`."""

        def restart() -> ConnectorStatus:
            self._connectors.state_with(name, UNKNOWN_CONNECTOR)
            status = self._statuses.get(name)
            if status is None:
                raise NotFoundError(f"Status for connector {name} not found")
            request = RestartRequest(name, include_tasks, only_failed)
            plan = plan_restart(request, status, self._statuses.tasks(name))
            with self._stages.stage(
                f"writing restart request for connector {name} to the config topic"
            ):
                self._store.put_restart_request(request)
            return ConnectorStatus(
                name, plan.connector_status, plan.task_statuses, self._connectors.type_of(name)
            )

        return self._if_exists(
            name, lambda: self._router.submit_to_leader(restart), UNKNOWN_CONNECTOR
        )

    def _if_exists(self, name: str, submit: Callable[[], Future[T]], message: str) -> Future[T]:
        """Route a request if the connector exists. Any worker can reject an unknown connector."""

        def check_and_submit() -> Future[T]:
            self._connectors.state_with(name, message)
            return submit()

        return self._executor.submit(check_and_submit)

    # Requests in the config topic

    def add_pending(self, request: RestartRequest) -> None:
        """Store a request that was read from the config topic. Thread-safe.

        If a request for the same connector is pending, the one with the greater impact is used.
        """
        with self._lock:
            pending = self._pending.get(request.connector)
            if pending is None or request.impact >= pending.impact:
                self._pending[request.connector] = request

    def run_pending(self) -> None:
        """Restart the requested connectors and tasks that run on this worker.

        Called on the herder's thread.
        """
        with self._lock:
            requests, self._pending = self._pending, {}
        for request in requests.values():
            status = self._statuses.get(request.connector)
            if status is not None and self._connectors.exists(request.connector):
                plan = plan_restart(request, status, self._statuses.tasks(request.connector))
                self._work.restart(request.connector, connector=plan.connector, tasks=plan.tasks)


def plan_restart(
    request: RestartRequest, connector: Status, tasks: Mapping[int, Status]
) -> RestartPlan:
    """Return the plan for a restart request, based on the current statuses.

    The statuses in the plan retain their stack traces.
    """

    def is_selected(status: Status) -> bool:
        return not request.only_failed or status.state is State.FAILED

    selected_tasks = [
        number
        for number, status in sorted(tasks.items())
        if request.include_tasks and is_selected(status)
    ]
    task_statuses = {
        number: replace(status, state=State.RESTARTING) if number in selected_tasks else status
        for number, status in sorted(tasks.items())
    }
    restarts_connector = is_selected(connector)
    return RestartPlan(
        restarts_connector,
        tuple(ConnectorTaskId(request.connector, number) for number in selected_tasks),
        replace(connector, state=State.RESTARTING) if restarts_connector else connector,
        task_statuses,
    )
