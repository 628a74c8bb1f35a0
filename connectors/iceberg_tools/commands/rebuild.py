"""`connect-py rebuild`: rebuilds a table from its change log or from its topics."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from connect_py.api.command import CommandContext, command
from connect_py.api.errors import ConfigError
from connect_py.plurals import pluralize
from connectors.iceberg_tools.commands.connector_json import resolve_connector
from connectors.iceberg_tools.commands.diff import DIFFERENT, UNDECIDED, difference_lines
from connectors.iceberg_tools.commands.load_options import LoadOptions
from connectors.iceberg_tools.commands.load_view import LoadView
from connectors.iceberg_tools.commands.rebuild_topics import RebuildOptions, TopicsRebuild, lines
from connectors.iceberg_tools.commands.table_options import (
    POINT,
    TIMEOUT,
    KeyColumns,
    RequiredConfig,
    Table,
    TableOptions,
    Timeout,
    Worker,
)
from connectors.iceberg_tools.commands.table_session import table_session
from connectors.iceberg_tools.operations.rebuild import REBUILD, RebuildArguments

if TYPE_CHECKING:
    from connectors.iceberg_tools.history.changelog_rebuild import RebuildRequest, RebuildResult

# options that have an effect with only one of the two sources
_CHANGELOG_OPTIONS = ("changelog", "at", "create", "timeout")
_TOPIC_OPTIONS = (
    "bootstrap_server",
    "master",
    "step_rows",
    "split",
    "conf",
    "kafka_property",
    "archive",
)


@command(worker=True, json=True, jars=["spark-kafka"], failure_status=UNDECIDED)
def rebuild(
    context: CommandContext,
    ctx: typer.Context,
    table: Table,
    *,
    config: RequiredConfig,
    from_topics: Annotated[
        bool,
        typer.Option(
            "--from-topics",
            help="Rebuild from the connector's topics. The connector may be running.",
        ),
    ] = False,
    changelog: Annotated[
        str | None,
        typer.Option(help="Change log table.", show_default="named by the connector's suffix"),
    ] = None,
    at: Annotated[str, typer.Option("--at", help=f"Snapshot of the table: {POINT}.")] = "last",
    key: KeyColumns = None,
    publish: Annotated[
        bool, typer.Option("--publish", help="Replace the table's rows with the rebuilt rows.")
    ] = False,
    create: Annotated[
        bool, typer.Option("--create", help="Create a new table from the entire change log.")
    ] = False,
    limit: Annotated[
        int, typer.Option(help="Maximum number of differing rows to show.", min=0)
    ] = 20,
    timeout: Timeout = TIMEOUT,
    load: LoadOptions,
    worker: Worker = None,
    allow_missing: Annotated[
        bool,
        typer.Option(
            "--allow-missing",
            help="Publish even if rows of the table are missing from the source.",
        ),
    ] = False,
) -> None:
    """Rebuild the rows of a table on a branch, and compare them with the table.

    The source is a change log or, with --from-topics, the records that are still in the topics.
    Spark reads the topics like `connect-py load`. If rows differ, the rebuilt rows are retained on
    branch `connect-py-rebuilt` until the next run. Exit status 0: equal, published, or created; 1:
    different; 2: unknown (the change log lags behind, or the catalog does not respond).
    """
    if publish and create:
        raise ConfigError("--create", "cannot be combined with --publish")
    _refuse_ignored(ctx, from_topics=from_topics)
    keys = tuple(key or ())
    if from_topics:
        context.warn("starting a separate Spark driver: it reads the topics")
        options = RebuildOptions(
            table, keys, limit, load.step_rows, load.split, publish, allow_missing
        )
        different = _from_topics(context, config, worker, load.settings(), options)
    else:
        arguments = RebuildArguments(
            table=table,
            changelog=changelog,
            at=at,
            keys=keys,
            limit=limit,
            create=create,
            publish=publish,
            allow_missing=allow_missing,
        )
        source = TableOptions(table, config, worker)
        different = _from_changelog(context, source, arguments, timeout)
    raise typer.Exit(DIFFERENT if different else 0)


def _refuse_ignored(ctx: typer.Context, *, from_topics: bool) -> None:
    """Reject options that have no effect with the selected source.

    Raises:
        ConfigError: An option has no effect. The error contains the first such option.
    """
    reason = "cannot be combined with --from-topics" if from_topics else "needs --from-topics"
    for name in _CHANGELOG_OPTIONS if from_topics else _TOPIC_OPTIONS:
        source = ctx.get_parameter_source(name)
        if source is not None and source.name == "COMMANDLINE":
            raise ConfigError(f"--{name.replace('_', '-')}", reason)


def _from_topics(
    context: CommandContext,
    config: Path,
    worker: Path | None,
    settings: dict[str, str],
    options: RebuildOptions,
) -> bool:
    """Rebuild from topics. Return True if rows differ and the rebuilt rows were not published.

    Raises:
        ConnectError: The rebuild ended early.
    """
    props = resolve_connector(context, config, worker)
    view = partial(LoadView, mask=context.mask, quiet=context.as_json)
    result = TopicsRebuild(context, props, worker, settings, options).run(view)
    context.show({"table": options.table, **result.to_json()}, lines(options.table, result))
    difference = result.difference
    return result.snapshot is None and difference is not None and difference.total > 0


def _from_changelog(
    context: CommandContext, source: TableOptions, arguments: RebuildArguments, timeout: int
) -> bool:
    """Rebuild from a change log. Return True if rows differ and were not published.

    Raises:
        ConnectError: The rebuild failed.
    """
    table = source.table
    with table_session(context, source, timeout) as session:
        result = session.run(REBUILD, arguments)
    rebuilt, published, refused = result.rebuilt, result.published, result.refused
    context.show(
        {"table": table, "published": published, "refused": refused, **rebuilt.to_json()},
        _lines(table, result.request, rebuilt, refused, published=published),
    )
    return result.different and not published


def _lines(
    table: str,
    request: RebuildRequest,
    rebuilt: RebuildResult,
    refused: str | None,
    *,
    published: bool,
) -> Iterator[str]:
    from connectors.iceberg.protocol.own_refs import BEFORE_TAG, REBUILT_BRANCH

    yield f"{table}: {pluralize(rebuilt.rows, 'row')} from {request.changelog}"
    for late in rebuilt.begins_late:
        yield f"warning: {late}"
    for column, count in rebuilt.unknown_values.items():
        treatment = "null" if rebuilt.difference is None else "taken from the table"
        unknown = pluralize(
            count,
            f"value of {column} is not in the change log; it is",
            f"values of {column} are not in the change log; they are",
        )
        yield f"warning: {unknown} {treatment}"
    if rebuilt.several_partitions:
        yield (
            f"warning: {pluralize(rebuilt.several_partitions, 'key has', 'keys have')} changes in "
            "several partitions, which are ordered by the timestamps of the source"
        )
    if rebuilt.difference is None:
        yield f"{table} is at snapshot {rebuilt.snapshot}"
        return
    yield from difference_lines(table, rebuilt.difference)
    if published:
        yield (
            f"published: {request.ref} is at snapshot {rebuilt.snapshot}; the previous state is "
            f"tag {BEFORE_TAG}"
        )
    elif rebuilt.difference.total:
        if refused:
            yield f"not published: {refused}"
        yield (
            f"inspect them on branch {REBUILT_BRANCH}, or replace the table's rows with --publish"
        )
    else:
        yield "equal: every row can be rebuilt from the change log"
