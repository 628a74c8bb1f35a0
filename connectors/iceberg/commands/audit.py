"""`connect-py audit`: proof from a table's ledger that every offset range is in once, and every data file too."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from connect_py.api.command import command_services, uses_java
from connect_py.api.errors import ConfigError
from connectors.iceberg.commands.exit_status import errors_exit

if TYPE_CHECKING:
    from collections.abc import Iterable

    from connectors.iceberg.audit.table_audit import AuditReport, Finding, GroupAudit
    from connectors.iceberg.config.spark_config import SparkConfig

UNDECIDED = 2


@uses_java
def audit(
    table: Annotated[str, typer.Argument(help="Full name of the table: namespace.table.")],
    config: Annotated[
        Path | None, typer.Option("--config", help="The connector as it is posted: its catalog, branch and group.")
    ] = None,
    catalog_property: Annotated[
        list[str] | None,
        typer.Option("--catalog-property", metavar="KEY=VALUE", help="As after `iceberg.catalog.`; may be repeated."),
    ] = None,
    catalog: Annotated[str, typer.Option(help="Name of the catalog, unless --config says it.")] = "iceberg",
    branch: Annotated[str | None, typer.Option(help="The branch that the connector commits to.")] = None,
    group: Annotated[
        str | None, typer.Option(help="Connect group: `connect-<connector>`. [default: every one that wrote here]")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="For machines.")] = False,
) -> None:
    """Prove from a table's snapshots that offset ranges follow each other and no data file is in twice.

    Exit status 0: proven; 1: violated; 2: not known (no ledger left, no answer from the catalog); 3: proven for
    the connector's own commits, and others have changed rows.
    """
    with errors_exit(UNDECIDED):
        from connectors.iceberg.audit.table_audit import audit as judge
        from connectors.iceberg.spark.lake_client import LakeClient

        settings, ref, only = _settings(table, config, catalog_property or [], catalog)
        with LakeClient(command_services(), settings) as lake:
            report = judge(lake.history(table, branch or ref), group or only)
    if as_json:
        typer.echo(json.dumps(report.to_json(), indent=2))
    else:
        for line in _lines(report):
            typer.echo(line)
    raise typer.Exit(int(report.verdict))


def _settings(
    table: str, config: Path | None, catalog_properties: list[str], catalog: str
) -> tuple[SparkConfig, str, str | None]:
    """How to reach the catalog, the ref, and the group if a connector says it.

    Raises:
        ConfigError: An option or the file makes no sense.
    """
    from connectors.iceberg.commands.connector_json import parse_connector
    from connectors.iceberg.config.spark_config import SparkConfig

    given: dict[str, str] = {}
    for item in catalog_properties:
        key, separator, value = item.partition("=")
        if not separator:
            raise ConfigError("--catalog-property", f"{item} is not of the form key=value")
        given[key] = value
    if config is None:
        if not given:
            raise ConfigError("", "where is the catalog? Give --config connector.json or --catalog-property type=…")
        return SparkConfig(catalog, given), "main", None
    parsed = parse_connector(config)
    catalog_settings = {**parsed.catalog, **given}
    settings = SparkConfig(parsed.catalog_name, catalog_settings, parsed.hadoop_settings(), parsed.spark)
    return settings, parsed.table(table).commit_branch or "main", parsed.connect_group


def _lines(report: AuditReport) -> Iterable[str]:
    """The report for people."""
    yield f"{report.table} ({report.ref}): {report.snapshots} snapshots, {report.live_files} data files"
    for group in report.groups:
        yield ""
        yield from _lines_of_group(group)
    if report.foreign:
        yield f"\ncommits of others: {len(report.foreign)}, of which {len(report.changes)} changed rows"
        yield from _findings("  ", [finding for finding in report.foreign if finding not in report.changes])
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
