"""`connect-py audit`: proof from a table's ledger that every offset range is in once, and every
data file too."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer

from connect_py.api.command import asks_worker, uses_java
from connectors.iceberg_tools.commands.exit_status import errors_exit
from connectors.iceberg_tools.commands.table_options import (
    TIMEOUT,
    AsJson,
    Catalog,
    CatalogProperties,
    Config,
    Table,
    Timeout,
    Worker,
)
from connectors.iceberg_tools.commands.table_session import TableOptions, table_session

if TYPE_CHECKING:
    from collections.abc import Iterable

    from connectors.iceberg_tools.audit.table_audit import AuditReport, Finding, GroupAudit

UNDECIDED = 2


@asks_worker
@uses_java
def audit(
    table: Table,
    config: Config = None,
    worker: Worker = None,
    catalog_property: CatalogProperties = None,
    catalog: Catalog = "iceberg",
    branch: Annotated[
        str | None, typer.Option(help="The branch that the connector commits to.")
    ] = None,
    group: Annotated[
        str | None,
        typer.Option(
            help="Connect group: `connect-<connector>`.", show_default="every one that wrote here"
        ),
    ] = None,
    timeout: Timeout = TIMEOUT,
    as_json: AsJson = False,
) -> None:
    """Prove from a table's snapshots that offset ranges follow each other and no data file is in
    twice.

    Exit status 0: proven; 1: violated; 2: not known (no ledger left, no answer from the catalog);
    3: proven for the connector's own commits, and others have changed rows.
    """
    with errors_exit(UNDECIDED):
        from connectors.iceberg_tools.operations.audit import AUDIT, AuditArguments

        options = TableOptions(table, config, worker, catalog_property, catalog, timeout)
        with table_session(options) as session:
            report = session.run(AUDIT, AuditArguments(table=table, branch=branch, group=group))
    if as_json:
        typer.echo(json.dumps(report.to_json(), indent=2))
    else:
        for line in _lines(report):
            typer.echo(line)
    raise typer.Exit(int(report.verdict))


def _lines(report: AuditReport) -> Iterable[str]:
    """The report for people."""
    yield (
        f"{report.table} ({report.ref}): {report.snapshots} snapshots, {report.live_files} data "
        f"files"
    )
    for group in report.groups:
        yield ""
        yield from _lines_of_group(group)
    if report.foreign:
        yield (
            f"\ncommits of others: {len(report.foreign)}, of which {len(report.changes)} changed "
            f"rows"
        )
        yield from _findings(
            "  ", [finding for finding in report.foreign if finding not in report.changes]
        )
        yield from _findings("  CHANGED ", report.changes)
    yield from _findings("VIOLATED ", report.files)
    yield from _findings("cannot tell: ", report.undecided)
    yield f"\n{report.verdict.name.lower()}"


def _lines_of_group(group: GroupAudit) -> Iterable[str]:
    yield f"group {group.group}: {group.commits} commits, {group.verdict.name.lower()}"
    for segment in group.segments:
        generation = f", generation {segment.generation}" if segment.generation else ""
        covered = f"offsets {segment.first} to {segment.next} in {segment.commits} commits"
        yield f"  {segment.partition}: {covered}{generation}"
    yield from _findings("  note: ", group.notes)
    yield from _findings("  cannot tell: ", group.undecided)
    yield from _findings("  VIOLATED ", group.violations)


def _findings(prefix: str, findings: Iterable[Finding]) -> Iterable[str]:
    for finding in findings:
        where = f" [snapshot {finding.snapshot}]" if finding.snapshot is not None else ""
        yield f"{prefix}{finding.text}{where}"
