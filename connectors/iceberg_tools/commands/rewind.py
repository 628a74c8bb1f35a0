"""`connect-py rewind`: tables and their source offsets go back together, on a stopped connector."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from connect_py.api.command import asks_worker, confirmed, uses_java
from connect_py.api.errors import ConfigError
from connectors.iceberg_tools.commands.exit_status import errors_exit
from connectors.iceberg_tools.commands.kafka_options import (
    BootstrapServer,
    ClientConfig,
    Properties,
    client_settings,
)
from connectors.iceberg_tools.commands.rollback import preview_lines
from connectors.iceberg_tools.commands.table_options import POINT, AsJson, Table, TablePlace, Worker
from connectors.iceberg_tools.commands.table_session import TableOptions, table_session

if TYPE_CHECKING:
    from connectors.iceberg_tools.operations.rewind import RewindPreview
    from connectors.iceberg_tools.refs.table_rewind import RewindMode

REFUSED, UNDECIDED = 1, 2


@asks_worker
@uses_java
def rewind(
    table: Table,
    to: Annotated[
        str,
        typer.Option(
            help=f"The state to go back to: {POINT}. With several tables: a time or a tag."
        ),
    ],
    config: Annotated[Path, typer.Option("--config", help="The connector as it is posted.")],
    replay: Annotated[
        bool, typer.Option("--replay", help="The connector reads again what leaves.")
    ] = False,
    skip: Annotated[
        bool, typer.Option("--skip", help="The table goes on from now, without what leaves.")
    ] = False,
    also: Annotated[
        list[str] | None, typer.Option(help="Another table of the connector; may be repeated.")
    ] = None,
    all_tables: Annotated[
        bool, typer.Option("--all-tables", help="All tables of `iceberg.tables`.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    bootstrap_server: BootstrapServer = None,
    kafka_property: Properties = None,
    client_config: ClientConfig = None,
    worker: Worker = None,
    as_json: AsJson = False,
) -> None:
    """Take tables back to an earlier state, and the connector's positions in them with it.

    Without --replay and --skip it is a preview. Stop the connector before (PUT
    /connectors/NAME/stop). Each table is one change; after an interruption run it again. Exit
    status 0: done, or it may be done; 1: refused; 2: not known.
    """
    with errors_exit(UNDECIDED):
        from connectors.iceberg_tools.operations.rewind import (
            PREVIEW_REWIND,
            REWIND,
            PreviewRewindArguments,
            RewindArguments,
            RewoundTable,
        )

        mode = _mode(replay=replay, skip=skip, asks=not (as_json and not yes))
        options = TableOptions(table, config, worker, None, "")

        def kafka(place: TablePlace) -> Mapping[str, Any]:
            return client_settings(bootstrap_server, kafka_property, client_config, place.host)

        heads: dict[str, int] = {}
        with table_session(options, kafka) as session:
            preview = session.run(
                PREVIEW_REWIND,
                PreviewRewindArguments(
                    table=table, to=to, also=tuple(also or ()), all_tables=all_tables, mode=mode
                ),
            )
            session.pause_status()
            if not as_json:
                for line in _lines(preview, mode):
                    typer.echo(line)
            for text in preview.refused:
                typer.echo(f"connect-py: {text}", err=True)
            if mode is not None and not preview.refused:
                if not yes and not confirmed("Rewind?"):
                    raise typer.Exit(REFUSED)
                tables = tuple(
                    RewoundTable(each.table, each.head, each.snapshot) for each in preview.tables
                )
                heads = session.run(
                    REWIND, RewindArguments(table=table, mode=mode, tables=tables)
                ).heads
    if as_json:
        typer.echo(
            json.dumps(
                {
                    "group": preview.group,
                    "mode": mode.value if mode else None,
                    "tables": [each.to_json() for each in preview.tables],
                    "other_tables": preview.other_tables,
                    "refused": preview.refused,
                    "missing": preview.missing,
                    "heads": heads,
                },
                indent=2,
            )
        )
    elif heads:
        for name, head in heads.items():
            typer.echo(f"{name} is at snapshot {head}")
    raise typer.Exit(REFUSED if preview.refused else 0)


def _mode(*, replay: bool, skip: bool, asks: bool) -> RewindMode | None:
    """None: a preview.

    Raises: ConfigError: Both were said, or it would have to ask, which would spoil what goes to a
        machine.
    """
    from connectors.iceberg_tools.refs.table_rewind import RewindMode

    if replay and skip:
        raise ConfigError("", "say one of --replay and --skip, or none of them for a preview")
    if (replay or skip) and not asks:
        raise ConfigError("--json", "needs --yes with --replay or --skip")
    return RewindMode.SKIP if skip else RewindMode.REPLAY if replay else None


def _lines(preview: RewindPreview, mode: RewindMode | None) -> Iterator[str]:
    """Return the preview for people."""
    skips = mode is not None and mode.value == "skip"
    for each in preview.tables:
        yield from preview_lines(each, skips=skips)
    if preview.other_tables:
        yield f"other tables of the connector stay as they are: {', '.join(preview.other_tables)}"
    if mode is None:
        for text in preview.missing:
            yield f"--replay would be refused: {text}"
        yield "nothing was changed: say --replay or --skip"
