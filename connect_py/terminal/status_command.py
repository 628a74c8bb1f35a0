"""`connect-py status`: one look at a worker and what its group runs."""

from __future__ import annotations

import json
from typing import Final

import typer

from connect_py.terminal.connector_view import ConnectorView
from connect_py.terminal.rest_client import RequestRefusedError, RestClient
from connect_py.terminal.worker_options import REFUSED, UNKNOWN, AsJson, asks_worker

HEADINGS: Final = ("CONNECTOR", "PART", "STATE", "WORKER", "REMARK")


@asks_worker
def status(worker: RestClient, as_json: AsJson = False) -> None:
    """Show a worker, and the connectors and tasks of its group, with what failed and what waits.

    Exit status 0: everything runs, or is paused or stopped as a user asked; 1: a connector or task
    is FAILED or UNASSIGNED; 2: not known, because no worker answers or it is not ready.
    """
    healthy, message = worker.health()
    server = worker.server()
    # a worker that starts answers about connectors late
    answer = worker.connectors() if healthy else {}
    views = ConnectorView.all_of(answer)
    workers = sorted({item.worker for view in views for item in view.items() if item.worker})
    runs, group = all(view.runs for view in views), _group(worker)
    if as_json:
        document = {
            "url": worker.url,
            **server,
            "group": group,
            "healthy": healthy,
            "message": message,
            "workers": workers,
            "runs": runs,
            "connectors": {name: found.get("status") for name, found in answer.items()},
        }
        typer.echo(json.dumps(document, indent=2))
    else:
        typer.echo(f"worker   {worker.url}: {'healthy' if healthy else message}")
        typer.echo(
            f"version  {server['version']} of Kafka Connect, {server['commit']} of connect-py"
        )
        typer.echo(f"cluster  {server['kafka_cluster_id']}")
        typer.echo(f"group    {group or 'not known'}")
        if healthy:
            typer.echo(f"workers  {', '.join(workers) or 'no worker runs anything'}")
            _print(views)
    raise typer.Exit(UNKNOWN if not healthy else 0 if runs else REFUSED)


def _group(worker: RestClient) -> str | None:
    from connect_py.terminal.figures import worker_group

    try:
        return worker_group(worker.metrics())
    except RequestRefusedError:  # as of a Java worker, which has no such path
        return None


def _print(views: list[ConnectorView]) -> None:
    if not views:
        typer.echo("\nThere are no connectors.")
        return
    from connect_py.terminal.tables import show

    typer.echo()
    show(
        HEADINGS,
        [
            (view.name, item.what, item.state, item.worker, item.remark())
            for view in views
            for item in view.items()
        ],
    )
