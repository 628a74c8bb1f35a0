"""`connect-py pipeline`: manages the connectors of a worker from one file."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from connect_py.api.command import CommandContext, command
from connect_py.plurals import pluralize
from connectors.iceberg_tools.pipeline.mistake import PipelineFileError

if TYPE_CHECKING:
    from connectors.iceberg_tools.pipeline.connector_plan import ConnectorPlan
    from connectors.iceberg_tools.pipeline.connector_state import ConnectorState
    from connectors.iceberg_tools.pipeline.pipeline_file import Pipeline
    from connectors.iceberg_tools.pipeline.worker_client import WorkerClient

DIFFERENT, NOT_RUNNING, DECLINED, UNDECIDED = 1, 1, 1, 2
ACTION_WIDTH = 9


@dataclass(frozen=True, slots=True)
class PipelineOptions:
    """A pipeline file and the worker that it is compared with."""

    file: Annotated[
        Path,
        typer.Argument(metavar="FILE", help="Pipeline file in YAML.", exists=True, dir_okay=False),
    ]
    url: Annotated[
        str | None,
        typer.Option(metavar="URL", help="URL of a worker.", show_default="the file's `worker`"),
    ] = None


Adopt = Annotated[
    bool,
    typer.Option("--adopt", help="Adopt connectors with these names that have no pipeline."),
]
Yes = Annotated[bool, typer.Option("--yes", help="Delete connectors without confirmation.")]


@command(json=True, failure_status=UNDECIDED)
def plan(context: CommandContext, source: PipelineOptions, adopt: Adopt = False) -> None:
    """Show how the connectors on the worker differ from the file. Nothing is changed.

    Exit status 0: they are equal; 1: they differ; 2: the file has errors, or the worker does not
    respond.
    """
    with _file_errors(context):
        pipeline, client = _open(source)
        with client:
            difference = _plan(client, pipeline, adopt)
    context.show(_document(difference.to_json(), pipeline, client), _plan_lines(difference))
    _refuse(context, difference)
    raise typer.Exit(DIFFERENT if difference.differs else 0)


@command(json=True, failure_status=UNDECIDED)
def apply(
    context: CommandContext,
    source: PipelineOptions,
    adopt: Adopt = False,
    yes: Yes = False,
    deadline: Annotated[
        int, typer.Option(help="Maximum number of seconds to wait for the tasks.", min=0)
    ] = 120,
) -> None:
    """Create, change, and delete connectors as shown by `plan`, and wait until all tasks run.

    The worker validates all connectors before any of them is changed. Exit status 0: all are
    running, or were paused or stopped by a user; 1: some are not running, or you declined; 2: the
    file has errors, or a request failed.
    """
    from connectors.iceberg_tools.pipeline.connector_plan import Action
    from connectors.iceberg_tools.pipeline.rollout import Rollout

    with _file_errors(context):
        pipeline, client = _open(source)
        with client:
            difference = _plan(client, pipeline, adopt)
            if not context.as_json:
                for line in _plan_lines(difference):
                    typer.echo(line)
            _refuse(context, difference)
            _ask_before_deleting(context, [each.name for each in difference.of(Action.DELETE)], yes)
            report = (lambda _: None) if context.as_json else typer.echo
            rollout = Rollout(client, pipeline, difference, report)
            rollout.apply()
            states = rollout.wait(deadline)
    connectors = [each.to_json() for each in states]
    document = {**difference.to_json(), "done": rollout.completed, "connectors": connectors}
    context.show(_document(document, pipeline, client), _state_lines(states))
    raise typer.Exit(0 if all(each.runs or each.rests for each in states) else NOT_RUNNING)


@command(json=True, failure_status=UNDECIDED)
def destroy(context: CommandContext, source: PipelineOptions, yes: Yes = False) -> None:
    """Delete the connectors that the pipeline manages.

    Tables, topics, and committed offsets are retained. Exit status 0: done; 1: you declined; 2: the
    file has errors, or a request failed.
    """
    from connectors.iceberg_tools.pipeline.connector_plan import owned

    with _file_errors(context):
        pipeline, client = _open(source)
        with client:
            names = owned(pipeline.name, client.connectors())
            _ask_before_deleting(context, names, yes)
            for name in names:
                client.delete(name)
                if not context.as_json:
                    typer.echo(f"deleted {name}")
    remark = [] if names else [f"pipeline {pipeline.name} has no connectors"]
    context.show(_document({"deleted": names}, pipeline, client), remark)


@command(json=True, failure_status=UNDECIDED)
def status(context: CommandContext, source: PipelineOptions) -> None:
    """Show the states of the pipeline's connectors and tasks, with reasons for problems.

    Exit status 0: all are running; 1: some are not running; 2: the file has errors, or the worker
    does not respond.
    """
    from connectors.iceberg_tools.pipeline.connector_plan import owned
    from connectors.iceberg_tools.pipeline.connector_state import ConnectorState

    with _file_errors(context):
        pipeline, client = _open(source)
        with client:
            present = client.connectors()
    names = dict.fromkeys([*pipeline.connectors, *owned(pipeline.name, present)])
    states = [
        ConnectorState.of(name, present[name].status if name in present else None) for name in names
    ]
    connectors = [each.to_json() for each in states]
    context.show(_document({"connectors": connectors}, pipeline, client), _state_lines(states))
    raise typer.Exit(0 if all(each.runs for each in states) else NOT_RUNNING)


@command()
def schema(_context: CommandContext) -> None:
    """Print the JSON schema of pipeline files, for editors."""
    from connectors.iceberg_tools.pipeline.file_fields import json_schema_string

    typer.echo(json_schema_string())


@contextmanager
def _file_errors(context: CommandContext) -> Iterator[None]:
    """Print the mistakes of a `PipelineFileError` that the `with` block raises, and exit."""
    try:
        yield
    except PipelineFileError as error:
        if context.as_json:
            mistakes = [each.to_json() for each in error.mistakes]
            typer.echo(json.dumps({"file": error.file, "mistakes": mistakes}, indent=2))
        else:
            typer.echo(str(error), err=True)
        raise typer.Exit(UNDECIDED) from error


def _open(source: PipelineOptions) -> tuple[Pipeline, WorkerClient]:
    from connectors.iceberg_tools.pipeline.pipeline_file import read_pipeline
    from connectors.iceberg_tools.pipeline.worker_client import WorkerClient

    pipeline = read_pipeline(source.file)
    return pipeline, WorkerClient(source.url or pipeline.worker)


def _plan(client: WorkerClient, pipeline: Pipeline, adopt: bool) -> ConnectorPlan:
    """Compare the file with the worker, and have the worker validate the changes.

    Raises:
        PipelineFileError: The worker rejects a configuration.
    """
    from connectors.iceberg_tools.pipeline.connector_plan import make_plan
    from connectors.iceberg_tools.pipeline.rollout import worker_mistakes

    difference = make_plan(pipeline, client.connectors(), adopt=adopt)
    mistakes = worker_mistakes(client, pipeline, difference)
    if mistakes:
        raise PipelineFileError(pipeline.file, mistakes.sorted())
    return difference


def _ask_before_deleting(context: CommandContext, names: list[str], yes: bool) -> None:
    if names and not yes and not context.confirm(f"delete {', '.join(names)}?"):
        raise typer.Exit(DECLINED)


def _refuse(context: CommandContext, difference: ConnectorPlan) -> None:
    """Print the connectors that the plan cannot change, and exit if there are any."""
    from connectors.iceberg_tools.pipeline.connector_plan import Action

    refused = difference.of(Action.REFUSED)
    for each in refused:
        context.warn(f"connector {each.name} {each.reason}")
    if refused:
        raise typer.Exit(UNDECIDED)


def _document(members: dict[str, Any], pipeline: Pipeline, client: WorkerClient) -> dict[str, Any]:
    return {"pipeline": pipeline.name, "worker": client.url, **members}


_COUNTED = {
    "create": "to create",
    "change": "to change",
    "unchanged": "unchanged",
    "delete": "to delete",
    "refused": "refused",
}


def _plan_lines(difference: ConnectorPlan) -> Iterator[str]:
    from connectors.iceberg_tools.pipeline.connector_plan import Action

    for each in difference.changes:
        yield f"{each.action.value:<{ACTION_WIDTH}} {each.name}" + (
            f": {each.reason}" if each.reason else ""
        )
        if each.action in (Action.CREATE, Action.CHANGE):
            yield from (f"  {key}" for key in each.keys)
    counts = ((len(difference.of(action)), action) for action in Action)
    yield ", ".join(f"{count} {_COUNTED[action.value]}" for count, action in counts if count)


def _state_lines(states: list[ConnectorState]) -> Iterator[str]:
    for each in states:
        if not each.exists:
            yield f"{each.name}: does not exist"
            continue
        running = sum(part.runs for part in each.parts[1:])
        state = "running" if each.runs else each.parts[0].state if each.rests else "not running"
        yield f"{each.name}: {state}" + (
            f", {running} of {pluralize(len(each.parts) - 1, 'task')} running" if each.parts else ""
        )
        if not each.rests:
            yield from (f"  {reason}" for reason in each.reasons())
