"""`connect-py rewind`: resets tables of a stopped connector together with their offsets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from connect_py.api.command import CommandContext, command
from connect_py.api.errors import ConfigError
from connectors.iceberg_tools.commands.kafka_options import KafkaOptions
from connectors.iceberg_tools.commands.rollback import preview_lines
from connectors.iceberg_tools.commands.table_options import (
    POINT,
    LocalTable,
    RequiredConfig,
    Table,
    TableOptions,
    Worker,
    Yes,
)
from connectors.iceberg_tools.commands.table_session import table_session
from connectors.iceberg_tools.operations.rewind import (
    PREVIEW_REWIND,
    REWIND,
    PreviewRewindArguments,
    RewindArguments,
    RewoundTable,
)
from connectors.iceberg_tools.refs.table_rewind import RewindMode

if TYPE_CHECKING:
    from connectors.iceberg_tools.operations.rewind import RewindPreview

REFUSED, UNDECIDED = 1, 2


@command(worker=True, json=True, failure_status=UNDECIDED)
def rewind(
    context: CommandContext,
    table: Table,
    *,
    to: Annotated[
        str,
        typer.Option(help=f"Snapshot to rewind to: {POINT}. For several tables: a time or a tag."),
    ],
    config: RequiredConfig,
    replay: Annotated[
        bool, typer.Option("--replay", help="The connector reads the removed records again.")
    ] = False,
    skip: Annotated[
        bool,
        typer.Option(
            "--skip", help="The connector resumes at its positions, without the removed records."
        ),
    ] = False,
    also: Annotated[
        list[str] | None, typer.Option(help="Another table of the connector; may be repeated.")
    ] = None,
    all_tables: Annotated[
        bool, typer.Option("--all-tables", help="All tables in `iceberg.tables`.")
    ] = False,
    yes: Yes = False,
    kafka: KafkaOptions,
    worker: Worker = None,
) -> None:
    """Reset tables to an earlier state, together with the connector's positions in their topics.

    Without --replay or --skip, only a preview is shown. Stop the connector first (PUT
    /connectors/NAME/stop). Each table is changed separately. After an interruption, run the command
    again. Exit status 0: done, or possible; 1: refused; 2: unknown.
    """
    mode = _mode(replay=replay, skip=skip, can_ask=yes or not context.as_json)

    def kafka_settings(local: LocalTable) -> Mapping[str, Any]:
        return kafka.settings(local.host)

    heads: dict[str, int] = {}
    source = TableOptions(table, config, worker)
    with table_session(context, source, kafka=kafka_settings) as session:
        preview = session.run(
            PREVIEW_REWIND,
            PreviewRewindArguments(
                table=table, to=to, also=tuple(also or ()), all_tables=all_tables, mode=mode
            ),
        )
        session.pause_status()
        if not context.as_json:
            for line in _lines(preview, mode):
                typer.echo(line)
        for reason in preview.refused:
            context.warn(reason)
        if mode is not None and not preview.refused:
            if not yes and not context.confirm("Rewind?"):
                raise typer.Exit(REFUSED)
            tables = tuple(
                RewoundTable(each.table, each.head, each.snapshot) for each in preview.tables
            )
            heads = session.run(
                REWIND, RewindArguments(table=table, mode=mode, tables=tables)
            ).heads
    context.show(
        {
            "group": preview.group,
            "mode": mode.value if mode else None,
            "tables": [each.to_json() for each in preview.tables],
            "other_tables": preview.other_tables,
            "refused": preview.refused,
            "missing": preview.missing,
            "heads": heads,
        },
        (f"{name} is at snapshot {head}" for name, head in heads.items()),
    )
    raise typer.Exit(REFUSED if preview.refused else 0)


def _mode(*, replay: bool, skip: bool, can_ask: bool) -> RewindMode | None:
    """Return the requested mode, or None for a preview.

    Raises:
        ConfigError: Both modes were requested, or a prompt would be mixed with JSON output.
    """
    if replay and skip:
        raise ConfigError("", "specify either --replay or --skip, or neither for a preview")
    if (replay or skip) and not can_ask:
        raise ConfigError("--json", "needs --yes with --replay or --skip")
    return RewindMode.SKIP if skip else RewindMode.REPLAY if replay else None


def _lines(preview: RewindPreview, mode: RewindMode | None) -> Iterator[str]:
    """Yield the lines of a preview."""
    skips = mode is not None and mode.value == "skip"
    for each in preview.tables:
        yield from preview_lines(each, skips=skips)
    if preview.other_tables:
        yield f"other tables of the connector do not change: {', '.join(preview.other_tables)}"
    if mode is None:
        for problem in preview.missing:
            yield f"--replay would be refused: {problem}"
        yield "nothing was changed; specify --replay or --skip"
