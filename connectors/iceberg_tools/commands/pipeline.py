"""`connect-py pipeline`: connectors of a worker from one file."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from connect_py.api.command import confirmed
from connectors.iceberg_tools.commands.exit_status import errors_exit
from connectors.iceberg_tools.commands.table_options import AsJson

if TYPE_CHECKING:
    from connectors.iceberg_tools.pipeline.connector_plan import ConnectorPlan
    from connectors.iceberg_tools.pipeline.connector_state import ConnectorState
    from connectors.iceberg_tools.pipeline.pipeline_file import Pipeline
    from connectors.iceberg_tools.pipeline.worker_client import WorkerClient

DIFFERENT, NOT_RUNNING, DECLINED, UNDECIDED = 1, 1, 1, 2
ACTION_WIDTH = 9

app = typer.Typer(help="Connectors from one file: what differs, and making it so.")
File = Annotated[
    Path, typer.Argument(metavar="FILE", help="The pipeline in YAML.", exists=True, dir_okay=False)
]
Url = Annotated[
    str | None,
    typer.Option(
        metavar="URL", help="A worker of the cluster.", show_default="the file's `worker`"
    ),
]
Adopt = Annotated[
    bool, typer.Option("--adopt", help="Take connectors of these names that belong to no pipeline.")
]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask before connectors are deleted.")]


@app.command("plan")
def plan(file: File, url: Url = None, adopt: Adopt = False, as_json: AsJson = False) -> None:
    """Show how the worker's connectors differ from the file's. Nothing is changed.

    Exit status 0: they are equal; 1: they differ; 2: the file has mistakes, or the worker does not
    answer.
    """
    with _errors_exit(as_json):
        pipeline, client = _open(file, url)
        with client:
            found = _plan(client, pipeline, adopt)
    if as_json:
        _show(found.to_json(), pipeline, client)
    else:
        for line in _plan_lines(found):
            typer.echo(line)
    _refuse(found)
    raise typer.Exit(DIFFERENT if found.differs else 0)


@app.command("apply")
def apply(
    file: File,
    url: Url = None,
    adopt: Adopt = False,
    yes: Yes = False,
    deadline: Annotated[
        int, typer.Option(help="Seconds in which all tasks have to run.", min=0)
    ] = 120,
    as_json: AsJson = False,
) -> None:
    """Create, change and delete connectors as `plan` shows, and wait until their tasks run.

    The worker validates all of them before it changes one. Exit status 0: all run, or were paused
    or stopped by a user; 1: some do not run, or you declined; 2: the file has mistakes, or a
    request failed.
    """
    from connectors.iceberg_tools.pipeline.connector_plan import Action
    from connectors.iceberg_tools.pipeline.rollout import Rollout

    with _errors_exit(as_json):
        pipeline, client = _open(file, url)
        with client:
            found = _plan(client, pipeline, adopt)
            if not as_json:
                for line in _plan_lines(found):
                    typer.echo(line)
            _refuse(found)
            _ask_before_deleting([each.name for each in found.of(Action.DELETE)], yes)
            rollout = Rollout(client, pipeline, found, (lambda _: None) if as_json else typer.echo)
            rollout.apply()
            states = rollout.wait(deadline)
    fine = all(each.runs or each.rests for each in states)
    if as_json:
        connectors = [each.to_json() for each in states]
        _show({**found.to_json(), "done": rollout.done, "connectors": connectors}, pipeline, client)
    else:
        for line in _state_lines(states):
            typer.echo(line)
    raise typer.Exit(0 if fine else NOT_RUNNING)


@app.command("destroy")
def destroy(file: File, url: Url = None, yes: Yes = False, as_json: AsJson = False) -> None:
    """Delete the connectors that belong to the file's pipeline. Tables, topics and committed
    offsets stay.

    Exit status 0: it is done; 1: you declined; 2: the file has mistakes, or a request failed.
    """
    from connectors.iceberg_tools.pipeline.connector_plan import owned

    with _errors_exit(as_json):
        pipeline, client = _open(file, url)
        with client:
            names = owned(pipeline.name, client.connectors())
            _ask_before_deleting(names, yes)
            for name in names:
                client.delete(name)
                if not as_json:
                    typer.echo(f"deleted {name}")
    if as_json:
        _show({"deleted": names}, pipeline, client)
    elif not names:
        typer.echo(f"no connector belongs to pipeline {pipeline.name}")


@app.command("status")
def status(file: File, url: Url = None, as_json: AsJson = False) -> None:
    """Show the connectors of the pipeline and their tasks: states, what they wait for, why they
    failed.

    Exit status 0: all run; 1: some do not; 2: the file has mistakes, or the worker does not answer.
    """
    from connectors.iceberg_tools.pipeline.connector_plan import owned
    from connectors.iceberg_tools.pipeline.connector_state import ConnectorState

    with _errors_exit(as_json):
        pipeline, client = _open(file, url)
        with client:
            present = client.connectors()
    names = dict.fromkeys([*pipeline.connectors, *owned(pipeline.name, present)])
    states = [
        ConnectorState.of(name, present[name].status if name in present else None) for name in names
    ]
    if as_json:
        _show({"connectors": [each.to_json() for each in states]}, pipeline, client)
    else:
        for line in _state_lines(states):
            typer.echo(line)
    raise typer.Exit(0 if all(each.runs for each in states) else NOT_RUNNING)


@app.command("schema")
def schema() -> None:
    """Print the JSON schema of pipeline files, for editors."""
    from connectors.iceberg_tools.pipeline.file_fields import json_schema_text

    typer.echo(json_schema_text())


@contextmanager
def _errors_exit(as_json: bool) -> Iterator[None]:
    """As `errors_exit`; of mistakes in the file all are shown, each with its line."""
    from connectors.iceberg_tools.pipeline.mistake import PipelineFileError

    with errors_exit(UNDECIDED):
        try:
            yield
        except PipelineFileError as error:
            if as_json:
                document = {
                    "file": error.file,
                    "mistakes": [each.to_json() for each in error.mistakes],
                }
                typer.echo(json.dumps(document, indent=2))
            else:
                typer.echo(str(error), err=True)
            raise typer.Exit(UNDECIDED) from error


def _open(file: Path, url: str | None) -> tuple[Pipeline, WorkerClient]:
    from connectors.iceberg_tools.pipeline.pipeline_file import read_pipeline
    from connectors.iceberg_tools.pipeline.worker_client import WorkerClient

    pipeline = read_pipeline(file)
    return pipeline, WorkerClient(url or pipeline.worker)


def _plan(client: WorkerClient, pipeline: Pipeline, adopt: bool) -> ConnectorPlan:
    """Compare, and let the worker validate what is to change.

    Raises:
        PipelineFileError: The worker does not accept a configuration.
    """
    from connectors.iceberg_tools.pipeline.connector_plan import make_plan
    from connectors.iceberg_tools.pipeline.mistake import PipelineFileError
    from connectors.iceberg_tools.pipeline.rollout import worker_mistakes

    found = make_plan(pipeline, client.connectors(), adopt=adopt)
    mistakes = worker_mistakes(client, pipeline, found)
    if mistakes:
        raise PipelineFileError(pipeline.file, mistakes.sorted())
    return found


def _ask_before_deleting(names: list[str], yes: bool) -> None:
    if names and not yes and not confirmed(f"delete {', '.join(names)}?"):
        raise typer.Exit(DECLINED)


def _refuse(found: ConnectorPlan) -> None:
    """End if a connector belongs to something else."""
    from connectors.iceberg_tools.pipeline.connector_plan import Action

    refused = found.of(Action.REFUSED)
    for each in refused:
        typer.echo(f"connect-py: connector {each.name} {each.reason}", err=True)
    if refused:
        raise typer.Exit(UNDECIDED)


def _show(document: dict[str, Any], pipeline: Pipeline, client: WorkerClient) -> None:
    typer.echo(json.dumps({"pipeline": pipeline.name, "worker": client.url, **document}, indent=2))


_COUNTED = {
    "create": "to create",
    "change": "to change",
    "unchanged": "unchanged",
    "delete": "to delete",
    "refused": "refused",
}


def _plan_lines(found: ConnectorPlan) -> Iterator[str]:
    from connectors.iceberg_tools.pipeline.connector_plan import Action

    for each in found.changes:
        yield f"{each.action.value:<{ACTION_WIDTH}} {each.name}" + (
            f": {each.reason}" if each.reason else ""
        )
        if each.action in (Action.CREATE, Action.CHANGE):
            yield from (f"  {key}" for key in each.keys)
    counts = ((len(found.of(action)), action) for action in Action)
    yield ", ".join(f"{count} {_COUNTED[action.value]}" for count, action in counts if count)


def _state_lines(states: list[ConnectorState]) -> Iterator[str]:
    for each in states:
        if not each.exists:
            yield f"{each.name}: is not there"
            continue
        running = sum(part.runs for part in each.parts[1:])
        shown = "runs" if each.runs else each.parts[0].state if each.rests else "does not run"
        yield f"{each.name}: {shown}" + (
            f", {running} of {len(each.parts) - 1} tasks run" if each.parts else ""
        )
        if not each.rests:
            yield from (f"  {reason}" for reason in each.reasons())
