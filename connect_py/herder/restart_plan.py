"""Which parts of a connector a restart request means."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from connect_py.model import ConnectorTaskId, State, Status
from connect_py.storage.config_state import RestartRequest


@dataclass(frozen=True, slots=True)
class RestartPlan:
    """What is restarted, and the statuses to show for it: RESTARTING there, the known ones
    elsewhere."""

    connector: bool
    tasks: tuple[ConnectorTaskId, ...]
    connector_status: Status
    task_statuses: Mapping[int, Status]


def plan_restart(
    request: RestartRequest, connector: Status, tasks: Mapping[int, Status]
) -> RestartPlan:
    """Apply a request to the statuses known now. An old trace is kept in what is shown."""

    def wanted(status: Status) -> bool:
        return not request.only_failed or status.state is State.FAILED

    chosen = [
        number
        for number, status in sorted(tasks.items())
        if request.include_tasks and wanted(status)
    ]
    shown = {
        number: replace(status, state=State.RESTARTING) if number in chosen else status
        for number, status in sorted(tasks.items())
    }
    with_connector = wanted(connector)
    return RestartPlan(
        with_connector,
        tuple(ConnectorTaskId(request.connector, number) for number in chosen),
        replace(connector, state=State.RESTARTING) if with_connector else connector,
        shown,
    )
