"""Preview or run the maintenance actions that are due for a table."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from connect_py.api.errors import ConfigError, ConnectError
from connectors.iceberg.config.maintenance_policy import SETTINGS, MaintenancePolicy
from connectors.iceberg_tools.maintenance.cold_partitions import has_time
from connectors.iceberg_tools.maintenance.maintenance_action import MaintenanceRequest, why_not
from connectors.iceberg_tools.maintenance.maintenance_action import maintain as run_action
from connectors.iceberg_tools.maintenance.maintenance_plan import MaintenanceAction, due_actions
from connectors.iceberg_tools.maintenance.maintenance_result import MaintenanceResult
from connectors.iceberg_tools.maintenance.table_state import TableState, measure
from connectors.iceberg_tools.operations.connector_table import ConnectorTable
from connectors.iceberg_tools.operations.table_operation import (
    Name,
    TableArguments,
    TableOperation,
    TableTarget,
)


class MaintenanceArguments(TableArguments, frozen=True, kw_only=True):
    """Settings that override the connector's settings.

    Each setting is `NAME=VALUE`. The name omits the prefix `iceberg.ext.maintenance.`.
    """

    branch: Name | None = None
    settings: tuple[str, ...] = ()


@dataclass(slots=True)
class Maintenance:
    """The state of a table, the maintenance actions that are due, and their results."""

    ref: str
    state: TableState
    due: list[MaintenanceAction]
    lacks_time: bool  # tiering is enabled, but the table has no time partition field
    # in a preview, the reason why an action would be skipped, by action
    left_out: dict[str, str] = field(default_factory=dict)
    results: list[MaintenanceResult] = field(default_factory=list)
    failures: dict[str, str] = field(default_factory=dict)  # error messages by action
    errors: list[str] = field(default_factory=list)  # messages of errors that aborted actions


def preview_maintenance(target: TableTarget, arguments: MaintenanceArguments) -> Maintenance:
    """Return the actions that are due. Read only.

    Raises:
        ConfigError: A setting is invalid.
    """
    maintenance, policy = _due(target, arguments)
    for action in maintenance.due:
        request = MaintenanceRequest(action, policy, maintenance.ref)
        try:
            reason = target.lake.run(target.table, why_not, request, maintenance.state)
        except ConnectError as error:
            reason = str(error)
        if reason:
            maintenance.left_out[action.kind.value] = reason
    return maintenance


def maintain(target: TableTarget, arguments: MaintenanceArguments) -> Maintenance:
    """Run the actions that are due, one after another. A failure does not stop the next action.

    Raises:
        ConfigError: A setting is invalid.
    """
    maintenance, policy = _due(target, arguments)
    for action in maintenance.due:
        kind = action.kind.value
        target.progress(kind)
        try:
            result: MaintenanceResult = target.lake.run(
                target.table, run_action, MaintenanceRequest(action, policy, maintenance.ref)
            )
        except ConnectError as error:
            maintenance.failures[kind] = str(error)
            maintenance.errors.append(str(error))
            continue
        maintenance.results.append(result)
        if result.failure:
            maintenance.failures[kind] = result.failure
    return maintenance


def _due(
    target: TableTarget, arguments: MaintenanceArguments
) -> tuple[Maintenance, MaintenancePolicy]:
    policy = policy_of(target, arguments.settings)
    metadata = target.metadata()
    ref = target.commit_ref(metadata, arguments.branch)
    target.progress("counting files")
    state: TableState = target.lake.run(target.table, measure, ref, policy)
    due = due_actions(state, policy, int(time.time() * 1000))
    return Maintenance(
        ref, state, due, policy.tiering_age_ms is not None and not has_time(metadata)
    ), policy


def policy_of(table: ConnectorTable, settings: Sequence[str]) -> MaintenancePolicy:
    """Return the table's maintenance policy with these settings applied.

    Raises:
        ConfigError: A setting does not exist, or its value is invalid.
    """
    settings_by_name = {each.name: each for each in SETTINGS}
    policy = (
        table.connector.table(table.table).maintenance
        if table.connector is not None
        else MaintenancePolicy()
    )
    for item in settings:
        name, separator, value = item.partition("=")
        if not separator or name not in settings_by_name:
            raise ConfigError(
                "--set",
                f"{item} is not of the form NAME=VALUE; names: {', '.join(settings_by_name)}",
            )
        try:
            policy = dataclasses.replace(
                policy, **{settings_by_name[name].member: settings_by_name[name].parse(value)}
            )
        except ValueError as error:
            raise ConfigError(f"--set {name}", str(error)) from error
    return policy


PREVIEW_MAINTENANCE = TableOperation(
    "preview-maintenance", MaintenanceArguments, Maintenance, preview_maintenance
)
MAINTAIN = TableOperation("maintain", MaintenanceArguments, Maintenance, maintain)
