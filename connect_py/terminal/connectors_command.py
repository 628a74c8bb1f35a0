"""`connect-py connectors`: list, create, change and delete the connectors of a worker group."""

from __future__ import annotations

import json
from enum import Enum
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from connect_py.api.command import confirmed
from connect_py.api.errors import ConnectError
from connect_py.terminal.connector_view import ConnectorView
from connect_py.terminal.rest_client import RestClient
from connect_py.terminal.worker_options import REFUSED, UNKNOWN, AsJson, asks_worker, complete_names

app = typer.Typer(
    help="The connectors of a worker group. Exit status 0: done; 1: the worker refused it, or a "
    "connector failed; "
    "2: no worker answers, wrong usage, or the state was not reached in time."
)

Name = Annotated[str, typer.Argument(metavar="NAME", autocompletion=complete_names)]
Names = Annotated[list[str], typer.Argument(metavar="NAME...", autocompletion=complete_names)]
Wait = Annotated[
    bool, typer.Option("--wait", help="Return once it is in that state, or shows why it failed.")
]
WaitSeconds = Annotated[
    float, typer.Option("--timeout", min=1, help="Seconds that --wait may take.")
]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask.")]

WAIT_SECONDS = 60.0


class InitialState(Enum):
    """In which state a connector is created."""

    RUNNING = "running"
    PAUSED = "paused"
    STOPPED = "stopped"


@app.command("ls")
@asks_worker
def list_(worker: RestClient, as_json: AsJson = False) -> None:
    """List all connectors with their states."""
    answer = worker.connectors()
    if as_json:
        typer.echo(json.dumps(answer, indent=2))
        return
    from connect_py.terminal.tables import show

    rows = [
        (view.name, view.type, view.connector.state, view.tasks_by_state(), view.connector.worker)
        for view in ConnectorView.all_of(answer)
    ]
    show(("NAME", "TYPE", "STATE", "TASKS", "WORKER"), rows)


@app.command("show")
@asks_worker
def show(
    worker: RestClient,
    name: Name,
    trace: Annotated[
        bool, typer.Option("--trace", help="Whole traces, not only their first lines.")
    ] = False,
    config: Annotated[
        bool, typer.Option("--config", help="Only the configuration, as `create` takes it.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show the states, topics and configuration of a connector."""
    info = worker.info(name)
    if config:
        typer.echo(json.dumps({"name": info["name"], "config": info["config"]}, indent=2))
        return
    status, topics = worker.status(name), worker.topics(name)
    if as_json:
        typer.echo(json.dumps({**info, "status": status, "topics": topics}, indent=2))
        return
    from connect_py.terminal.tables import show as show_table

    view = ConnectorView.of(name, info, status)
    typer.echo(f"{view.name}: {view.type} {view.plugin}")
    typer.echo(f"topics: {', '.join(topics) or 'none yet'}\n")
    rows = [(item.what, item.state, item.worker, item.remark()) for item in view.items()]
    show_table(("", "STATE", "WORKER", "REMARK"), rows)
    typer.echo()
    show_table(
        ("KEY", "VALUE"),
        sorted((key, value) for key, value in info["config"].items() if key != "name"),
    )
    for item in view.items() if trace else ():
        if item.trace:
            typer.echo(f"\n{item.what}:\n{item.trace.rstrip()}")


@app.command("create")
@asks_worker
def create(
    worker: RestClient,
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE",
            exists=True,
            dir_okay=False,
            help="JSON as it is posted, flat JSON with name, or properties.",
        ),
    ],
    replace: Annotated[
        bool, typer.Option("--replace", help="Change a connector that exists.")
    ] = False,
    state: Annotated[InitialState, typer.Option(help="Of a new connector.")] = InitialState.RUNNING,
    check: Annotated[
        bool, typer.Option("--check", help="Only ask the worker what is wrong with it.")
    ] = False,
    wait: Wait = False,
    timeout: WaitSeconds = WAIT_SECONDS,
) -> None:
    """Create a connector from a file, after the worker has validated it. Each wrong key is printed
    with its error."""
    from connect_py.terminal.connector_request import read_request

    if replace and state is not InitialState.RUNNING:
        raise typer.BadParameter("an existing connector keeps its state", param_hint="--state")
    request = read_request(file)
    errors = worker.validate(request.config)
    for key, texts in errors.items():
        for text in texts:
            typer.echo(f"{key}: {text}", err=True)
    if errors:
        typer.echo(f"connect-py: {file}: {len(errors)} wrong keys; nothing was changed", err=True)
        raise typer.Exit(REFUSED)
    if check:
        typer.echo(f"{request.name}: the worker accepts it; nothing was changed")
        return
    if replace:
        worker.replace(request.name, request.config)
    else:
        worker.create(
            request.name, request.config, None if state is InitialState.RUNNING else state.name
        )
    typer.echo(f"{request.name}: {'written' if replace else 'created'}")
    if wait:
        _wait(worker, [request.name], state.name, timeout, failed_before=replace)


@app.command("pause")
@asks_worker
def pause(
    worker: RestClient, names: Names, wait: Wait = False, timeout: WaitSeconds = WAIT_SECONDS
) -> None:
    """Pause connectors: tasks keep their partitions, and get no records."""
    _change(worker, names, "pause", "PAUSED", timeout if wait else None)


@app.command("resume")
@asks_worker
def resume(
    worker: RestClient, names: Names, wait: Wait = False, timeout: WaitSeconds = WAIT_SECONDS
) -> None:
    """Let paused or stopped connectors run."""
    _change(worker, names, "resume", "RUNNING", timeout if wait else None)


@app.command("stop")
@asks_worker
def stop(
    worker: RestClient, names: Names, wait: Wait = False, timeout: WaitSeconds = WAIT_SECONDS
) -> None:
    """Stop connectors: tasks end, and offsets may be changed."""
    _change(worker, names, "stop", "STOPPED", timeout if wait else None)


@app.command("restart")
@asks_worker
def restart(
    worker: RestClient,
    names: Names,
    failed: Annotated[bool, typer.Option("--failed", help="Only what has failed.")] = False,
    task: Annotated[
        int | None, typer.Option(min=0, help="Only this task.", show_default="all")
    ] = None,
    wait: Wait = False,
    timeout: WaitSeconds = WAIT_SECONDS,
) -> None:
    """Restart connectors with their tasks."""
    if failed and task is not None:
        raise typer.BadParameter("cannot be combined with --failed", param_hint="--task")
    for name in names:
        if task is None:
            worker.restart(name, only_failed=failed)
        else:
            worker.restart_task(name, task)
        typer.echo(f"{name}: restart requested")
    if wait:
        _wait(worker, names, "RUNNING", timeout, failed_before=True)


@app.command("delete")
@asks_worker
def delete(worker: RestClient, names: Names, yes: Yes = False) -> None:
    """Delete connectors. Offsets, topics and tables stay."""
    known = worker.names()
    missing = [name for name in names if name not in known]
    if missing:
        raise ConnectError(f"there is no connector {', '.join(missing)}; nothing was changed")
    if not yes and not confirmed(f"Delete {', '.join(names)}?"):
        raise typer.Abort
    for name in names:
        worker.delete(name)
        typer.echo(f"{name}: deleted")


@app.command("offsets")
@asks_worker
def offsets(
    worker: RestClient,
    name: Name,
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="TOPIC/PARTITION=OFFSET",
            help="Of a sink: the next offset to read. Repeatable.",
        ),
    ] = None,
    reset: Annotated[bool, typer.Option("--reset", help="Forget all offsets.")] = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Show the committed offsets of a connector; set or reset those of a stopped one."""
    if set_ and reset:
        raise typer.BadParameter("cannot be combined with --set", param_hint="--reset")
    if set_:
        typer.echo(worker.alter_offsets(name, [_offset(text) for text in set_]))
        return
    if reset:
        if not yes and not confirmed(f"Forget all offsets of {name}?"):
            raise typer.Abort
        typer.echo(worker.reset_offsets(name))
        return
    found = worker.offsets(name)
    if as_json:
        typer.echo(json.dumps({"offsets": found}, indent=2))
        return
    from connect_py.terminal.tables import show as show_table

    if all("kafka_topic" in row["partition"] for row in found):
        of_sink = [
            (
                row["partition"]["kafka_topic"],
                str(row["partition"]["kafka_partition"]),
                str((row["offset"] or {}).get("kafka_offset", "")),
            )
            for row in found
        ]
        show_table(("TOPIC", "PARTITION", "OFFSET"), of_sink, right=("PARTITION", "OFFSET"))
    else:
        show_table(
            ("PARTITION", "OFFSET"),
            [(json.dumps(row["partition"]), json.dumps(row["offset"])) for row in found],
        )


def _offset(text: str) -> dict[str, object]:
    place, _, offset = text.rpartition("=")
    topic, _, partition = place.rpartition("/")
    if not topic or not partition.isdigit() or not offset.isdigit():
        raise typer.BadParameter(
            f"{text} is not of the form TOPIC/PARTITION=OFFSET", param_hint="--set"
        )
    return {
        "partition": {"kafka_topic": topic, "kafka_partition": int(partition)},
        "offset": {"kafka_offset": int(offset)},
    }


def _change(
    worker: RestClient, names: list[str], change: str, state: str, wait_seconds: float | None
) -> None:
    for name in names:
        worker.change_state(name, change)
        typer.echo(f"{name}: {change} requested")
    if wait_seconds is not None:
        _wait(worker, names, state, wait_seconds, failed_before=change == "resume")


def _wait(
    worker: RestClient, names: list[str], state: str, seconds: float, *, failed_before: bool
) -> None:
    from connect_py.terminal.state_wait import StateWait

    for name in names:
        result = StateWait(worker, seconds).wait(name, state, failed_before=failed_before)
        if result.failed is not None:
            typer.echo(
                f"connect-py: {name}: {result.failed.what} failed:\n{result.failed.trace.rstrip()}",
                err=True,
            )
            raise typer.Exit(REFUSED)
        if not result.reached:
            _late(result.view, state, seconds)
        typer.echo(f"{name}: {state}, tasks: {result.view.tasks_by_state()}")


def _late(view: ConnectorView, state: str, seconds: float) -> NoReturn:
    remark = f"; {view.remark()}" if view.remark() else ""
    typer.echo(
        f"connect-py: {view.name} is not {state} after {seconds:g} s: connector "
        f"{view.connector.state}, tasks: {view.tasks_by_state()}{remark}",
        err=True,
    )
    raise typer.Exit(UNKNOWN)
