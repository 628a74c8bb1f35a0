"""Selection of the connector and tasks that a restart request applies to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from connect_py.model import ConnectorTaskId, State, Status
from connect_py.storage.config_state import RestartRequest


@dataclass(frozen=True, slots=True)
class RestartPlan:
    """Items to restart, and the statuses to show: RESTARTING for these items, the current status
    for the others.
    """

    connector: bool
    tasks: tuple[ConnectorTaskId, ...]
    connector_status: Status
    task_statuses: Mapping[int, Status]


def plan_restart(
    request: RestartRequest, connector: Status, tasks: Mapping[int, Status]
) -> RestartPlan:
    """Apply a restart request to the current statuses. The statuses to show retain their old stack
    traces.
    """

    def is_selected(status: Status) -> bool:
        return not request.only_failed or status.state is State.FAILED

    chosen = [
        number
        for number, status in sorted(tasks.items())
        if request.include_tasks and is_selected(status)
    ]
    task_statuses = {
        number: replace(status, state=State.RESTARTING) if number in chosen else status
        for number, status in sorted(tasks.items())
    }
    restarts_connector = is_selected(connector)
    return RestartPlan(
        restarts_connector,
        tuple(ConnectorTaskId(request.connector, number) for number in chosen),
        replace(connector, state=State.RESTARTING) if restarts_connector else connector,
        task_statuses,
    )
