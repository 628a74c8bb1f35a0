"""`connect-py status`: shows a worker and all connectors and tasks in its group."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import typer

from connect_py.api.command import command
from connect_py.terminal.command_context import LocalContext
from connect_py.terminal.connector_view import ConnectorView
from connect_py.terminal.exit_status import REFUSED, UNKNOWN
from connect_py.terminal.rest_client import RequestRefusedError, RestClient
from connect_py.terminal.tables import table_lines
from connect_py.terminal.task_metrics import worker_group

HEADINGS: Final = ("CONNECTOR", "PART", "STATE", "WORKER", "REMARK")


@command(worker=True, json=True)
def status(context: LocalContext) -> None:
    """Show a worker and its group's connectors and tasks, with failures and reasons for waiting.

    The exit status is 0 if everything is running, or was paused or stopped by a user; 1 if a
    connector or task is FAILED or UNASSIGNED; 2 if no worker responds or the worker is not ready.
    """
    worker = context.rest_client()
    healthy, message = worker.health()
    # a worker that is starting delays its responses to requests about connectors
    connectors = worker.connectors() if healthy else {}
    views = ConnectorView.all_of(connectors)
    running = all(view.runs for view in views)
    document = {
        "url": worker.url,
        **worker.server(),
        "group": _group(worker),
        "healthy": healthy,
        "message": message,
        "workers": sorted({item.worker for view in views for item in view.items() if item.worker}),
        "runs": running,
        "connectors": {name: each.get("status") for name, each in connectors.items()},
    }
    context.show(document, _lines(document, views))
    raise typer.Exit(UNKNOWN if not healthy else 0 if running else REFUSED)


def _group(worker: RestClient) -> str | None:
    try:
        return worker_group(worker.metrics())
    except RequestRefusedError:  # Java workers do not have this path
        return None


def _lines(document: Mapping[str, Any], views: Sequence[ConnectorView]) -> Iterator[str]:
    healthy = document["healthy"]
    yield f"worker   {document['url']}: {'healthy' if healthy else document['message']}"
    yield f"version  {document['version']} of Kafka Connect, {document['commit']} of connect-py"
    yield f"cluster  {document['kafka_cluster_id']}"
    yield f"group    {document['group'] or 'unknown'}"
    if not healthy:
        return
    yield f"workers  {', '.join(document['workers']) or 'no worker runs a connector or task'}"
    yield ""
    if not views:
        yield "There are no connectors."
        return
    rows = [
        (view.name, item.label, item.state, item.worker, item.remark())
        for view in views
        for item in view.items()
    ]
    yield from table_lines(HEADINGS, rows)
