"""`connect-py audit`: verifies that offset ranges and data files were committed once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from connect_py.api.command import CommandContext, command
from connect_py.plurals import pluralize
from connectors.iceberg_tools.commands.table_options import TIMEOUT, Group, TableOptions, Timeout
from connectors.iceberg_tools.commands.table_session import table_session
from connectors.iceberg_tools.operations.audit import AUDIT, AuditArguments

if TYPE_CHECKING:
    from collections.abc import Iterable

    from connectors.iceberg_tools.audit.table_audit import AuditReport, Finding, GroupAudit

UNDECIDED = 2


@command(worker=True, json=True, failure_status=UNDECIDED)
def audit(
    context: CommandContext,
    source: TableOptions,
    branch: Annotated[
        str | None, typer.Option(help="Branch that the connector commits to.")
    ] = None,
    group: Group = None,
    timeout: Timeout = TIMEOUT,
) -> None:
    """Verify that a table contains each offset range and each data file exactly once.

    The proof uses the table's snapshots: offset ranges must be contiguous, and no data file may
    have been added twice. Exit status 0: verified; 1: violated; 2: unknown (the ledger has expired,
    or the catalog does not respond); 3: verified for the connector's own commits, but other writers
    have changed rows.
    """
    arguments = AuditArguments(table=source.table, branch=branch, group=group)
    with table_session(context, source, timeout) as session:
        report = session.run(AUDIT, arguments)
    context.show(report.to_json(), _lines(report))
    raise typer.Exit(int(report.verdict))


def _lines(report: AuditReport) -> Iterable[str]:
    """Yield the lines of a report."""
    yield (
        f"{report.table} ({report.ref}): {pluralize(report.snapshots, 'snapshot')}, "
        f"{pluralize(report.live_files, 'data file')}"
    )
    for group in report.groups:
        yield ""
        yield from _lines_of_group(group)
    if report.foreign:
        yield (
            f"\ncommits by other writers: {len(report.foreign)}, {len(report.changes)} of them "
            "changed rows"
        )
        yield from _findings(
            "  ", [finding for finding in report.foreign if finding not in report.changes]
        )
        yield from _findings("  CHANGED ", report.changes)
    yield from _findings("VIOLATED ", report.files)
    yield from _findings("unknown: ", report.undecided)
    yield f"\n{report.verdict.name.lower()}"


def _lines_of_group(group: GroupAudit) -> Iterable[str]:
    commits = pluralize(group.commits, "commit")
    yield f"group {group.group}: {commits}, {group.verdict.name.lower()}"
    for segment in group.segments:
        generation = f", generation {segment.generation}" if segment.generation else ""
        offsets = f"offsets {segment.first} to {segment.next}"
        commits = pluralize(segment.commits, "commit")
        yield f"  {segment.partition}: {offsets} in {commits}{generation}"
    yield from _findings("  note: ", group.notes)
    yield from _findings("  unknown: ", group.undecided)
    yield from _findings("  VIOLATED ", group.violations)


def _findings(prefix: str, findings: Iterable[Finding]) -> Iterable[str]:
    for finding in findings:
        where = f" [snapshot {finding.snapshot}]" if finding.snapshot is not None else ""
        yield f"{prefix}{finding.text}{where}"
