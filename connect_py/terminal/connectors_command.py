"""`connect-py connectors`: lists, creates, changes, and deletes a worker group's connectors."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import typer

from connect_py.api.command import command
from connect_py.api.errors import ConnectError
from connect_py.plurals import pluralize
from connect_py.terminal.command_context import LocalContext
from connect_py.terminal.connector_request import read_request
from connect_py.terminal.connector_view import ConnectorView
from connect_py.terminal.exit_status import REFUSED, UNKNOWN
from connect_py.terminal.state_wait import StateWait
from connect_py.terminal.tables import table_lines
from connect_py.terminal.worker_options import complete_names

Name = Annotated[str, typer.Argument(metavar="NAME", autocompletion=complete_names)]
Names = Annotated[list[str], typer.Argument(metavar="NAME...", autocompletion=complete_names)]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")]


@dataclass(frozen=True, slots=True)
class WaitOptions:
    """Options for commands that can wait for the requested state."""

    wait: Annotated[
        bool,
        typer.Option("--wait", help="Wait until the state is reached, or show the failure."),
    ] = False
    timeout: Annotated[
        float, typer.Option("--timeout", min=1, help="Maximum time for --wait, in seconds.")
    ] = 60.0


class InitialState(Enum):
    """State in which a connector is created."""

    RUNNING = "running"
    PAUSED = "paused"
    STOPPED = "stopped"


@command(worker=True, json=True)
def ls(context: LocalContext) -> None:
    """List all connectors with their states."""
    connectors = context.rest_client().connectors()
    rows = [
        (view.name, view.type, view.connector.state, view.tasks_by_state(), view.connector.worker)
        for view in ConnectorView.all_of(connectors)
    ]
    context.show(connectors, table_lines(("NAME", "TYPE", "STATE", "TASKS", "WORKER"), rows))


@command(worker=True, json=True)
def show(
    context: LocalContext,
    name: Name,
    trace: Annotated[
        bool, typer.Option("--trace", help="Show full stack traces, not only their first lines.")
    ] = False,
    config: Annotated[
        bool,
        typer.Option("--config", help="Show only the configuration, in the format for `create`."),
    ] = False,
) -> None:
    """Show the states, topics, and configuration of a connector."""
    worker = context.rest_client()
    info = worker.info(name)
    if config:
        typer.echo(json.dumps({"name": info["name"], "config": info["config"]}, indent=2))
        return
    status, topics = worker.status(name), worker.topics(name)
    view = ConnectorView.of(name, info, status)
    document = {**info, "status": status, "topics": topics}
    context.show(document, _connector_lines(view, topics, info["config"], traces=trace))


def _connector_lines(
    view: ConnectorView, topics: Sequence[str], config: Mapping[str, str], *, traces: bool
) -> Iterator[str]:
    yield f"{view.name}: {view.type} {view.plugin}"
    yield f"topics: {', '.join(topics) or 'none yet'}\n"
    items = [(item.label, item.state, item.worker, item.remark()) for item in view.items()]
    yield from table_lines(("", "STATE", "WORKER", "REMARK"), items)
    yield ""
    keys = sorted((key, value) for key, value in config.items() if key != "name")
    yield from table_lines(("KEY", "VALUE"), keys)
    for item in view.items() if traces else ():
        if item.trace:
            yield f"\n{item.label}:\n{item.trace.rstrip()}"


@command(worker=True)
def create(
    context: LocalContext,
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE",
            exists=True,
            dir_okay=False,
            help="REST API JSON, flat JSON that includes `name`, or a Java properties file.",
        ),
    ],
    *,
    replace: Annotated[
        bool, typer.Option("--replace", help="Change the connector if it exists.")
    ] = False,
    state: Annotated[
        InitialState, typer.Option(help="State of a new connector.")
    ] = InitialState.RUNNING,
    check: Annotated[
        bool, typer.Option("--check", help="Only validate the configuration on the worker.")
    ] = False,
    waiting: WaitOptions,
) -> None:
    """Create a connector from a file after the worker has validated it.

    Each invalid key is printed with its error.
    """
    if replace and state is not InitialState.RUNNING:
        raise typer.BadParameter(
            "a state can only be set for a new connector", param_hint="--state"
        )
    request = read_request(file)
    worker = context.rest_client()
    errors = worker.validate(request.config)
    for key, messages in errors.items():
        for message in messages:
            typer.echo(f"{key}: {message}", err=True)
    if errors:
        context.warn(f"{file}: {pluralize(len(errors), 'invalid key')}; nothing was changed")
        raise typer.Exit(REFUSED)
    if check:
        typer.echo(f"{request.name}: the worker accepts the configuration; nothing was changed")
        return
    if replace:
        worker.replace(request.name, request.config)
    else:
        initial = None if state is InitialState.RUNNING else state.name
        worker.create(request.name, request.config, initial)
    typer.echo(f"{request.name}: {'created or updated' if replace else 'created'}")
    _wait(context, [request.name], state.name, waiting, failed_before=replace)


@command(worker=True)
def pause(context: LocalContext, names: Names, *, waiting: WaitOptions) -> None:
    """Pause connectors. Their tasks retain their partitions but receive no records."""
    _change(context, names, "pause", "PAUSED", waiting)


@command(worker=True)
def resume(context: LocalContext, names: Names, *, waiting: WaitOptions) -> None:
    """Resume paused or stopped connectors."""
    _change(context, names, "resume", "RUNNING", waiting)


@command(worker=True)
def stop(context: LocalContext, names: Names, *, waiting: WaitOptions) -> None:
    """Stop connectors and shut down their tasks. Their offsets can be changed afterward."""
    _change(context, names, "stop", "STOPPED", waiting)


@command(worker=True)
def restart(
    context: LocalContext,
    names: Names,
    *,
    failed: Annotated[
        bool, typer.Option("--failed", help="Restart only failed connectors and tasks.")
    ] = False,
    task: Annotated[
        int | None, typer.Option(min=0, help="Restart only this task.", show_default="all")
    ] = None,
    waiting: WaitOptions,
) -> None:
    """Restart connectors and their tasks."""
    if failed and task is not None:
        raise typer.BadParameter("cannot be combined with --failed", param_hint="--task")
    worker = context.rest_client()
    for name in names:
        if task is None:
            worker.restart(name, only_failed=failed)
        else:
            worker.restart_task(name, task)
        typer.echo(f"{name}: restart requested")
    _wait(context, names, "RUNNING", waiting, failed_before=True)


@command(worker=True)
def delete(context: LocalContext, names: Names, yes: Yes = False) -> None:
    """Delete connectors. Their offsets, topics, and tables are retained."""
    worker = context.rest_client()
    existing = worker.names()
    missing = [name for name in names if name not in existing]
    if missing:
        raise ConnectError(f"no such connector: {', '.join(missing)}; nothing was changed")
    if not yes and not context.confirm(f"Delete {', '.join(names)}?"):
        raise typer.Abort
    for name in names:
        worker.delete(name)
        typer.echo(f"{name}: deleted")


@command(worker=True, json=True)
def offsets(
    context: LocalContext,
    name: Name,
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="TOPIC/PARTITION=OFFSET",
            help="Next offset that a sink connector reads. Repeatable.",
        ),
    ] = None,
    reset: Annotated[bool, typer.Option("--reset", help="Delete all offsets.")] = False,
    yes: Yes = False,
) -> None:
    """Show the committed offsets of a connector, or change those of a stopped connector."""
    if set_ and reset:
        raise typer.BadParameter("cannot be combined with --set", param_hint="--reset")
    worker = context.rest_client()
    if set_:
        typer.echo(worker.alter_offsets(name, [_offset(argument) for argument in set_]))
        return
    if reset:
        if not yes and not context.confirm(f"Delete all offsets of {name}?"):
            raise typer.Abort
        typer.echo(worker.reset_offsets(name))
        return
    rows = worker.offsets(name)
    context.show({"offsets": rows}, _offset_lines(rows))


def _offset_lines(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    if all("kafka_topic" in row["partition"] for row in rows):
        yield from table_lines(
            ("TOPIC", "PARTITION", "OFFSET"),
            [
                (
                    row["partition"]["kafka_topic"],
                    str(row["partition"]["kafka_partition"]),
                    str((row["offset"] or {}).get("kafka_offset", "")),
                )
                for row in rows
            ],
            right=("PARTITION", "OFFSET"),
        )
    else:
        yield from table_lines(
            ("PARTITION", "OFFSET"),
            [(json.dumps(row["partition"]), json.dumps(row["offset"])) for row in rows],
        )


def _offset(argument: str) -> dict[str, object]:
    topic_partition, _, offset = argument.rpartition("=")
    topic, _, partition = topic_partition.rpartition("/")
    if not topic or not partition.isdigit() or not offset.isdigit():
        raise typer.BadParameter(
            f"invalid value {argument!r}: expected TOPIC/PARTITION=OFFSET", param_hint="--set"
        )
    return {
        "partition": {"kafka_topic": topic, "kafka_partition": int(partition)},
        "offset": {"kafka_offset": int(offset)},
    }


def _change(
    context: LocalContext, names: Sequence[str], change: str, state: str, waiting: WaitOptions
) -> None:
    worker = context.rest_client()
    for name in names:
        worker.change_state(name, change)
        typer.echo(f"{name}: {change} requested")
    _wait(context, names, state, waiting, failed_before=change == "resume")


def _wait(
    context: LocalContext,
    names: Sequence[str],
    state: str,
    options: WaitOptions,
    *,
    failed_before: bool,
) -> None:
    """Wait for a state if requested, and exit with an error if it is not reached."""
    if not options.wait:
        return
    state_wait = StateWait(context.rest_client(), options.timeout)
    for name in names:
        result = state_wait.wait(name, state, failed_before=failed_before)
        view, failure = result.view, result.failure
        if failure is not None:
            context.warn(f"{name}: {failure.label} failed:\n{failure.trace.rstrip()}")
            raise typer.Exit(REFUSED)
        if not result.reached:
            remark = f"; {view.remark()}" if view.remark() else ""
            context.warn(
                f"{name} is not {state} after {options.timeout:g} s: connector "
                f"{view.connector.state}, tasks: {view.tasks_by_state()}{remark}"
            )
            raise typer.Exit(UNKNOWN)
        typer.echo(f"{name}: {state}, tasks: {view.tasks_by_state()}")
