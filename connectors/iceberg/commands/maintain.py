"""`connect-py maintain`: what is due at a table, and do it."""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from connect_py.api.command import uses_java
from connect_py.api.errors import ConfigError, ConnectError
from connectors.iceberg.commands.exit_status import errors_exit
from connectors.iceberg.commands.table_options import (
    AsJson,
    Branch,
    Catalog,
    CatalogProperties,
    Config,
    Table,
    TablePlace,
    Worker,
    known_branch,
    table_place,
)

if TYPE_CHECKING:
    from connectors.iceberg.config.maintenance_policy import MaintenancePolicy
    from connectors.iceberg.maintenance.maintenance_plan import MaintenanceAction
    from connectors.iceberg.maintenance.maintenance_result import MaintenanceResult
    from connectors.iceberg.maintenance.table_state import TableState

FAILED, UNDECIDED = 1, 2


@uses_java
def maintain(
    table: Table,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what is due, and why.")] = False,
    now: Annotated[bool, typer.Option("--now", help="Do what is due, at any hour.")] = False,
    setting: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="As after `iceberg.ext.maintenance.`; may be repeated."),
    ] = None,
    timeout: Annotated[int, typer.Option(help="Seconds that one action may take.", min=1)] = 3600,
    config: Config = None,
    worker: Worker = None,
    catalog_property: CatalogProperties = None,
    catalog: Catalog = "iceberg",
    branch: Branch = None,
    as_json: AsJson = False,
) -> None:
    """Compact, expire and clean a table by its policy: that of the connector's configuration, and --set.

    Exit status 0: done, or nothing was due; 1: an action failed; 2: not known (no such table, no answer).
    """
    with errors_exit(UNDECIDED):
        from connectors.iceberg.history.table_diff import read_metadata
        from connectors.iceberg.maintenance.cold_partitions import has_time
        from connectors.iceberg.maintenance.maintenance_plan import due_actions
        from connectors.iceberg.maintenance.table_state import measure

        if dry_run == now:
            raise ConfigError("", "say one of --dry-run and --now")
        place = table_place(table, config, worker, catalog_property, catalog)
        policy = _policy(place, setting or ())
        with place.open(timeout) as lake:
            ref = known_branch(lake.run(table, read_metadata), branch, place)
            state = lake.run(table, measure, ref, policy)
            due = due_actions(state, policy, int(time.time() * 1000))
            left_out = _left_out(lake, table, ref, policy, state, due) if dry_run else {}
            if not as_json:
                for line in _lines(table, ref, state, due, left_out):
                    typer.echo(line)
                if policy.tiering_age_ms is not None and not has_time(lake.run(table, read_metadata)):
                    typer.echo("tiering: the table has no partition field of time: hour, day, month, year, or a date")
            results, failures = _do(lake, table, ref, policy, due, quiet=as_json) if now else ([], {})
    if as_json:
        typer.echo(json.dumps({
            "table": table, "ref": ref, "state": state.to_json(), "due": [each.to_json() for each in due],
            "left_out": left_out,
            "done": [each.to_json() for each in results], "failed": failures,
        }, indent=2))  # fmt: skip
    raise typer.Exit(FAILED if failures else 0)


def _policy(place: TablePlace, settings: Any) -> MaintenancePolicy:
    """That of the table, and what the command line says instead.

    Raises:
        ConfigError: There is no such setting, or its value makes no sense.
    """
    from connectors.iceberg.config.maintenance_policy import SETTINGS, MaintenancePolicy

    known = {each.name: each for each in SETTINGS}
    policy = place.connector.table(place.table).maintenance if place.connector is not None else MaintenancePolicy()
    for item in settings:
        name, separator, value = item.partition("=")
        if not separator or name not in known:
            raise ConfigError("--set", f"{item} is not NAME=VALUE with one of {', '.join(known)}")
        try:
            policy = dataclasses.replace(policy, **{known[name].member: known[name].parse(value)})
        except ValueError as error:
            raise ConfigError(f"--set {name}", str(error)) from error
    return policy


def _left_out(
    lake: Any, table: str, ref: str, policy: MaintenancePolicy, state: TableState, due: list[MaintenanceAction]
) -> dict[str, str]:
    """Which of the actions that are due would not be done, and why; also where that could not be found out."""
    from connectors.iceberg.maintenance.maintenance_action import MaintenanceRequest, why_not

    reasons = {}
    for each in due:
        try:
            reasons[each.kind.value] = lake.run(table, why_not, MaintenanceRequest(each, policy, ref), state)
        except ConnectError as error:
            reasons[each.kind.value] = str(error)
    return {kind: reason for kind, reason in reasons.items() if reason}


def _do(
    lake: Any, table: str, ref: str, policy: MaintenancePolicy, due: list[MaintenanceAction], *, quiet: bool
) -> tuple[list[MaintenanceResult], dict[str, str]]:
    """One action after the other; what failed keeps no other from being done."""
    from rich.console import Console

    from connectors.iceberg.maintenance.maintenance_action import MaintenanceRequest
    from connectors.iceberg.maintenance.maintenance_action import maintain as act

    results: list[MaintenanceResult] = []
    failures: dict[str, str] = {}
    for action in due:
        try:
            with Console(stderr=True).status(f"{table}: {action.kind.value}"):
                result = lake.run(table, act, MaintenanceRequest(action, policy, ref))
        except ConnectError as error:
            failures[action.kind.value] = str(error)
            typer.echo(f"connect-py: {error}", err=True)
            continue
        results.append(result)
        if result.failure:
            failures[action.kind.value] = result.failure
        if not quiet:
            typer.echo(result.line())
    return results, failures


def _lines(
    table: str, ref: str, state: TableState, due: list[MaintenanceAction], left_out: Mapping[str, str]
) -> Iterator[str]:
    from connectors.iceberg.maintenance.maintenance_result import COUNTED

    yield f"{table} ({ref})"
    for name in (*COUNTED, "expirable"):
        yield f"{name.replace('_', ' '):<16} {state.to_json()[name]}"
    for action in due:
        yield f"due: {action.kind.value} ({action.reason})"
        if action.kind.value in left_out:
            yield f"     left out, {left_out[action.kind.value]}"
    if not due:
        yield "nothing is due"
