"""`connect-py schema-changes`: lists the schema changes that rows are waiting for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Annotated

import httpx
import typer
from prometheus_client.parser import text_string_to_metric_families

from connect_py.api import rest_paths
from connect_py.api.command import CommandContext, command
from connect_py.api.errors import ConnectError
from connect_py.api.rest_paths import path

METRIC = "connect_py_iceberg_held_changes"
PENDING, UNKNOWN = 1, 2
TIMEOUT_SECONDS = 20.0
REASON_CHARACTERS = 300


@dataclass(frozen=True, slots=True, order=True)
class PendingChange:
    """A schema change for which rows from a connector are waiting."""

    connector: str
    table: str
    change: str


@command(json=True, failure_status=UNKNOWN)
def schema_changes(
    context: CommandContext,
    worker: Annotated[
        str, typer.Argument(metavar="URL", help="URL of a worker of the cluster.")
    ] = "http://localhost:8083",
    connector: Annotated[
        str | None, typer.Option(help="Only this connector.", show_default="all")
    ] = None,
) -> None:
    """List the schema changes that rows are waiting for.

    Rows wait if the connector's evolution settings contain `hold`. The changes are read from the
    metrics of all workers of the cluster that run tasks. Exit status 0: no rows are waiting; 1:
    rows are waiting; 2: a worker does not respond.
    """
    try:
        changes = pending_changes(httpx.URL(worker), connector)
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise ConnectError(_message(error, worker, connector)) from error
    context.show({"held": [asdict(change) for change in changes]}, _lines(changes))
    raise typer.Exit(PENDING if changes else 0)


def _lines(changes: Sequence[PendingChange]) -> Iterator[str]:
    for each in changes:
        yield f"{each.connector}: table {each.table} is waiting for a user to {each.change}"
    if not changes:
        yield "no rows are waiting for a schema change"


def _message(error: httpx.HTTPError | httpx.InvalidURL, worker: str, connector: str | None) -> str:
    if not isinstance(error, httpx.HTTPStatusError):
        at = error.request.url if isinstance(error, httpx.RequestError) else worker
        return f"{at}: {error or type(error).__name__}"
    response = error.response
    # only a worker's response contains an error code
    if response.status_code == 404 and connector is not None and '"error_code"' in response.text:
        return f"{worker}: connector {connector} does not exist"
    return (
        f"{error.request.url} failed with status {response.status_code}: "
        f"{response.text[:REASON_CHARACTERS]}"
    )


def pending_changes(worker: httpx.URL, connector: str | None = None) -> list[PendingChange]:
    """Return the sorted pending changes in a worker's cluster.

    Raises:
        httpx.HTTPError: A worker does not respond, or rejects the request, for example because the
            connector does not exist.
    """
    with httpx.Client(timeout=TIMEOUT_SECONDS) as client:

        def get(base: httpx.URL, target: str) -> httpx.Response:
            url = str(base).rstrip("/") + target
            return client.get(url).raise_for_status()

        names: list[str] = (
            get(worker, rest_paths.CONNECTORS).json() if connector is None else [connector]
        )
        statuses = [
            get(worker, path(rest_paths.CONNECTOR_STATUS, connector=name)).json() for name in names
        ]
        workers = {task["worker_id"] for status in statuses for task in status["tasks"]}
        changes = set()
        for worker_id in workers:
            host, _, port = worker_id.rpartition(":")
            metrics = get(worker.copy_with(host=host, port=int(port)), rest_paths.METRICS).text
            for sample in (
                each
                for family in text_string_to_metric_families(metrics)
                for each in family.samples
            ):
                labels = sample.labels
                if sample.name == METRIC and sample.value and labels["connector"] in names:
                    changes.add(
                        PendingChange(labels["connector"], labels["table"], labels["change"])
                    )
    return sorted(changes)
