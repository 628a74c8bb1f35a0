"""`connect-py schema-changes`: changes of tables that rows wait for, as the configuration leaves
them to a person."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    import httpx

METRIC = "connect_py_iceberg_held_changes"
PENDING, UNKNOWN = 1, 2
ASK_SECONDS = 20.0
REASON_CHARACTERS = 300


@dataclass(frozen=True, slots=True, order=True)
class PendingChange:
    """Rows of a connector wait until a user changes a table like this, or the configuration."""

    connector: str
    table: str
    change: str


def schema_changes(
    worker: Annotated[
        str, typer.Argument(metavar="URL", help="A worker of the cluster.")
    ] = "http://localhost:8083",
    connector: Annotated[
        str | None, typer.Option(help="This one only.", show_default="all")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="For machines.")] = False,
) -> None:
    """List the changes of tables that rows wait for: what `hold` in the connectors' evolution
    settings has stopped.

    Every worker of the cluster that runs tasks is asked for its metrics. Exit status 0: nothing
    waits; 1: something does; 2: a worker does not answer.
    """
    import httpx

    try:
        found = pending_changes(httpx.URL(worker), connector)
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        typer.echo(f"connect-py: {_in_words(error, worker, connector)}", err=True)
        raise typer.Exit(UNKNOWN) from error
    if as_json:
        typer.echo(json.dumps({"held": [asdict(change) for change in found]}, indent=2))
    else:
        for change in found:
            typer.echo(
                f"{change.connector}: table {change.table} waits for a user to {change.change}"
            )
        if not found:
            typer.echo("no rows wait for a schema change")
    raise typer.Exit(PENDING if found else 0)


def _in_words(error: httpx.HTTPError | httpx.InvalidURL, worker: str, connector: str | None) -> str:
    import httpx

    if not isinstance(error, httpx.HTTPStatusError):
        at = error.request.url if isinstance(error, httpx.RequestError) else worker
        return f"{at}: {error or type(error).__name__}"
    answer = error.response
    # a worker said so
    if answer.status_code == 404 and connector is not None and '"error_code"' in answer.text:
        return f"{worker}: there is no connector {connector}"
    return f"{error.request.url} answers {answer.status_code}: {answer.text[:REASON_CHARACTERS]}"


def pending_changes(worker: httpx.URL, connector: str | None = None) -> list[PendingChange]:
    """Ask the cluster of this worker; sorted.

    Raises: httpx.HTTPError: A worker does not answer, or refuses: an unknown connector among other
        things.
    """
    import httpx
    from prometheus_client.parser import text_string_to_metric_families

    with httpx.Client(timeout=ASK_SECONDS) as client:

        def ask(at: httpx.URL, path: str) -> httpx.Response:
            return client.get(at.copy_with(path=at.path.rstrip("/") + path)).raise_for_status()

        names: list[str] = ask(worker, "/connectors").json() if connector is None else [connector]
        statuses = [ask(worker, f"/connectors/{name}/status").json() for name in names]
        workers = {task["worker_id"] for status in statuses for task in status["tasks"]}
        found = set()
        for place in workers:
            host, _, port = place.rpartition(":")
            metrics = ask(worker.copy_with(host=host, port=int(port)), "/metrics").text
            for sample in (
                each
                for family in text_string_to_metric_families(metrics)
                for each in family.samples
            ):
                labels = sample.labels
                if sample.name == METRIC and sample.value and labels["connector"] in names:
                    found.add(PendingChange(labels["connector"], labels["table"], labels["change"]))
    return sorted(found)
