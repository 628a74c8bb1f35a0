"""`connect-py rebuild`: a table rebuilt from its change log, or from its topics."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from connect_py.api.command import asks_worker, reads_kafka_in_spark
from connect_py.api.errors import ConfigError
from connectors.iceberg_tools.commands.diff import DIFFERENT, UNDECIDED, difference_lines
from connectors.iceberg_tools.commands.exit_status import errors_exit
from connectors.iceberg_tools.commands.kafka_options import BootstrapServer
from connectors.iceberg_tools.commands.load_options import (
    STEP_ROWS,
    Archive,
    Conf,
    KafkaProperty,
    Master,
    Split,
    StepRows,
    kafka_settings,
    spark_settings,
)
from connectors.iceberg_tools.commands.rebuild_topics import RebuildOptions
from connectors.iceberg_tools.commands.table_options import (
    POINT,
    TIMEOUT,
    AsJson,
    Table,
    Timeout,
    Worker,
)
from connectors.iceberg_tools.commands.table_session import TableOptions, table_session

if TYPE_CHECKING:
    from connectors.iceberg_tools.history.changelog_rebuild import RebuildRequest, Rebuilt

# Options that have an effect with one of the two sources only.
_OF_CHANGELOG = ("changelog", "at", "create", "timeout")
_OF_TOPICS = (
    "bootstrap_server",
    "master",
    "step_rows",
    "split",
    "conf",
    "kafka_property",
    "archive",
)


@asks_worker
@reads_kafka_in_spark
def rebuild(
    ctx: typer.Context,
    table: Table,
    config: Annotated[Path, typer.Option("--config", help="The connector as it is posted.")],
    from_topics: Annotated[
        bool, typer.Option("--from-topics", help="Of the connector's topics, while it runs or not.")
    ] = False,
    changelog: Annotated[
        str | None,
        typer.Option(help="Table of the changes.", show_default="the suffix of the connector"),
    ] = None,
    at: Annotated[str, typer.Option("--at", help=f"Which state of the table: {POINT}.")] = "last",
    key: Annotated[
        list[str] | None,
        typer.Option(
            help="Column of the key; may be repeated.",
            show_default="the connector's, or the identifier fields",
        ),
    ] = None,
    publish: Annotated[
        bool, typer.Option("--publish", help="Put the rebuilt rows in place of the table's.")
    ] = False,
    create: Annotated[
        bool, typer.Option("--create", help="Make a new table, of all that the log has.")
    ] = False,
    limit: Annotated[int, typer.Option(help="Differing rows to show.", min=0)] = 20,
    timeout: Timeout = TIMEOUT,
    bootstrap_server: BootstrapServer = None,
    worker: Worker = None,
    master: Master = None,
    step_rows: StepRows = STEP_ROWS,
    split: Split = 1,
    conf: Conf = None,
    kafka_property: KafkaProperty = None,
    archive: Archive = None,
    allow_missing: Annotated[
        bool,
        typer.Option(
            "--allow-missing",
            help="Publish although rows of the table are not in what it is rebuilt of.",
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Rebuild the rows of a table on a branch, and compare them with the table's.

    Of a change log, or with --from-topics of the records that the topics still have, by Spark, as
    `connect-py load` reads them. Rows that differ stay on branch `connect-py-rebuilt` until the
    next run. Exit status 0: equal, published, or created; 1: different; 2: not known (the log has
    not come as far, no answer from the catalog).
    """
    with errors_exit(UNDECIDED):
        if publish and create:
            raise ConfigError("--create", "cannot be combined with --publish")
        _refuse_ignored(ctx, from_topics=from_topics)
        if not from_topics:
            different = _from_changelog(
                table,
                config,
                worker,
                changelog,
                at,
                key,
                limit,
                timeout,
                create=create,
                publish=publish,
                allow_missing=allow_missing,
                as_json=as_json,
            )
        else:
            typer.echo(
                "connect-py: starting a separate Spark driver: it reads the topics", err=True
            )
            settings = kafka_settings(bootstrap_server, kafka_property) | spark_settings(
                master, conf, archive
            )
            options = RebuildOptions(
                table, tuple(key or ()), limit, step_rows, split, publish, allow_missing
            )
            different = _from_topics(config, worker, settings, options, as_json=as_json)
    raise typer.Exit(DIFFERENT if different else 0)


def _refuse_ignored(ctx: typer.Context, *, from_topics: bool) -> None:
    """Refuse what was typed for the other of the two sources.

    Raises:
        ConfigError: Names the first such option.
    """
    why = "cannot be combined with --from-topics" if from_topics else "needs --from-topics"
    for name in _OF_CHANGELOG if from_topics else _OF_TOPICS:
        source = ctx.get_parameter_source(name)
        if source is not None and source.name == "COMMANDLINE":
            raise ConfigError(f"--{name.replace('_', '-')}", why)


def _from_topics(
    config: Path,
    worker: Path | None,
    settings: dict[str, str],
    options: RebuildOptions,
    *,
    as_json: bool,
) -> bool:
    """Rebuild from topics; returns whether rows differ that were not published.

    Raises:
        ConnectError: It ended before.
    """
    from connectors.iceberg_tools.commands.connector_json import resolve_connector
    from connectors.iceberg_tools.commands.load_view import LoadView
    from connectors.iceberg_tools.commands.rebuild_topics import TopicsRebuild, lines

    props = resolve_connector(config, worker)
    found = TopicsRebuild(props, worker, settings, options).run(partial(LoadView, quiet=as_json))
    if as_json:
        typer.echo(json.dumps({"table": options.table, **found.to_json()}, indent=2))
    else:
        for line in lines(options.table, found):
            typer.echo(line)
    return found.snapshot is None and found.difference is not None and found.difference.total > 0


def _from_changelog(
    table: str,
    config: Path,
    worker: Path | None,
    changelog: str | None,
    at: str,
    key: list[str] | None,
    limit: int,
    timeout: int,
    *,
    create: bool,
    publish: bool,
    allow_missing: bool,
    as_json: bool,
) -> bool:
    """Rebuild from a change log; return True if rows differ that were not published.

    Raises:
        ConnectError: The rebuild failed.
    """
    from connectors.iceberg_tools.operations.rebuild import REBUILD, RebuildArguments

    with table_session(TableOptions(table, config, worker, None, "", timeout)) as session:
        found = session.run(
            REBUILD,
            RebuildArguments(
                table=table,
                changelog=changelog,
                at=at,
                keys=tuple(key or ()),
                limit=limit,
                create=create,
                publish=publish,
                allow_missing=allow_missing,
            ),
        )
    made, published, refused = found.rebuilt, found.published, found.refused
    if as_json:
        document = {"table": table, "published": published, "refused": refused, **made.to_json()}
        typer.echo(json.dumps(document, indent=2))
    else:
        for line in _lines(table, found.request, made, refused, published=published):
            typer.echo(line)
    return found.different and not published


def _lines(
    table: str, request: RebuildRequest, made: Rebuilt, refused: str | None, *, published: bool
) -> Iterator[str]:
    from connectors.iceberg.protocol.own_refs import BEFORE_TAG, REBUILT_BRANCH

    yield f"{table}: {made.rows} rows from {request.changelog}"
    for late in made.begins_late:
        yield f"warning: {late}"
    for column, count in made.unknown_values.items():
        kept = "are null" if made.difference is None else "are taken from the table"
        yield f"warning: {count} values of {column} are not in the change log, so they {kept}"
    if made.several_partitions:
        yield (
            f"warning: {made.several_partitions} keys have changes in several partitions, "
            "which are ordered by the source's time"
        )
    if made.difference is None:
        yield f"{table} is at snapshot {made.snapshot}"
        return
    yield from difference_lines(table, made.difference)
    if published:
        yield (
            f"published: {request.ref} is at snapshot {made.snapshot}; the state of before is "
            f"tag {BEFORE_TAG}"
        )
    elif made.difference.total:
        if refused:
            yield f"not published: {refused}"
        yield (
            f"look at them on branch {REBUILT_BRANCH}, or put them in place of the table's with "
            f"--publish"
        )
    else:
        yield "equal: every row can be made anew from the change log"
