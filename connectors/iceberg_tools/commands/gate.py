"""`connect-py gate`: commits that readers do not see, because their rows are not as expected."""

from __future__ import annotations

import json
from collections.abc import Iterator
from enum import Enum
from typing import TYPE_CHECKING, Annotated

import typer

from connect_py.api.command import uses_java
from connect_py.api.errors import ConfigError
from connectors.iceberg_tools.commands.exit_status import errors_exit
from connectors.iceberg_tools.commands.table_options import (
    AsJson,
    Branch,
    Catalog,
    CatalogProperties,
    Config,
    Table,
    TablePlace,
    Worker,
    table_place,
)

if TYPE_CHECKING:
    from connectors.iceberg.protocol.table_metadata import TableMetadata
    from connectors.iceberg_tools.refs.gate_decision import UnpublishedCommits

WAITING, REFUSED, UNDECIDED = 1, 1, 2


class Reject(Enum):
    """What becomes of rows that were not published."""

    REPLAY = "replay"
    DROP = "drop"
    DEAD_LETTER = "dead-letter"
    SKIP = "skip"


@uses_java
def gate(
    table: Table,
    publish: Annotated[
        bool, typer.Option("--publish", help="Show readers all of them, as they are.")
    ] = False,
    reject: Annotated[
        Reject | None,
        typer.Option(
            help="Throw them away. The connector reads their rows again, and judges them as "
            "configured now (replay), leaves out what is not as expected (drop), also keeps that "
            "(dead-letter); or none comes again (skip)."
        ),
    ] = None,
    group: Annotated[
        str | None,
        typer.Option(help="Connect group: `connect-<connector>`.", show_default="the one"),
    ] = None,
    config: Config = None,
    worker: Worker = None,
    catalog_property: CatalogProperties = None,
    catalog: Catalog = "iceberg",
    branch: Branch = None,
    as_json: AsJson = False,
) -> None:
    """List the commits of a table that `hold` in an expectation keeps from readers; publish them,
    or throw them away.

    The connector may run meanwhile. Exit status 0: nothing is unpublished, or it is done; 1:
    something is unpublished, or the decision is refused, and why; 2: not known (no such table,
    branch or group, no answer from the catalog).
    """
    with errors_exit(UNDECIDED):
        from connectors.iceberg_tools.history.table_diff import read_metadata
        from connectors.iceberg_tools.refs.gate_decision import (
            Decision,
            DecisionRequest,
            decide,
            why_not,
        )

        if publish and reject is not None:
            raise ConfigError("--reject", "cannot be combined with --publish")
        decision = (
            Decision.PUBLISH if publish else Decision(reject.value) if reject is not None else None
        )
        place = table_place(table, config, worker, catalog_property, catalog)
        with place.open() as lake:
            found = _found(lake.run(table, read_metadata), place, group, branch)
            refused = ""
            if decision is not None and len(found) > 1:
                refused = f"name one with --group: {', '.join(each.group for each in found)}"
            elif decision is not None and found:
                request = DecisionRequest(decision, found[0])
                refused = why_not(request)
                if not refused:
                    lake.run(table, decide, request)
    done = decision is not None and bool(found) and not refused
    if as_json:
        document = {
            "table": table,
            "unpublished": [each.to_json() for each in found],
            "refused": refused or None,
        }
        typer.echo(
            json.dumps(
                {**document, "decision": decision.value if done and decision else None}, indent=2
            )
        )
    else:
        for line in _lines(table, place.spark.catalog, found):
            typer.echo(line)
        if done and decision is not None:
            typer.echo(_DONE[decision.value].format(each=found[0]))
    if refused:
        typer.echo(f"connect-py: table {table}: {refused}", err=True)
    raise typer.Exit(WAITING if refused or (found and not done) else 0)


_DONE = {
    "publish": "published: {each.ref} is at snapshot {each.head}",
    "replay": "thrown away: the connector reads these rows again",
    "drop": "thrown away: the connector reads these rows again, and leaves out what is not as "
    "expected",
    "dead-letter": "thrown away: the connector reads these rows again, and rejects what is not as "
    "expected",
    "skip": "thrown away: the connector goes on from now, without these rows",
}


def _found(
    metadata: TableMetadata, place: TablePlace, group: str | None, branch: str | None
) -> list[UnpublishedCommits]:
    """The unpublished commits of the group, or of all.

    Raises: ConfigError: The group has committed nothing to the table, there is no such branch, or
        they are for another one.
    """
    from connectors.iceberg.protocol.own_refs import OWN_REFS
    from connectors.iceberg_tools.refs.gate_decision import groups_of, unpublished_commits

    named, known = group or place.group, groups_of(metadata)
    if named is not None and named not in known:
        others = f"these groups have: {', '.join(known)}" if known else "no group has"
        raise ConfigError(
            "--group" if group else "--config",
            f"{named} has not committed to {place.table}; {others}",
        )
    branches = {
        "main",
        *(name for name in metadata.refs if not name.startswith(OWN_REFS)),
    } - metadata.tags
    # where the table does not say it
    ref = branch if branch is not None and branch in branches else place.ref
    found = unpublished_commits(metadata, dict.fromkeys(known if named is None else [named], ref))
    if branch is not None and branch not in branches | {each.ref for each in found}:
        raise ConfigError("--branch", f"the table has no branch {branch}")
    for each in found:
        if branch not in (None, each.ref):
            raise ConfigError(
                "--branch", f"the unpublished commits of {each.group} are for {each.ref}"
            )
    return found


def _lines(table: str, catalog: str, found: list[UnpublishedCommits]) -> Iterator[str]:
    from connectors.iceberg.catalog.sql_names import relation
    from connectors.iceberg.commit.rules.expectations import described
    from connectors.iceberg_tools.history.snapshot_entry import utc

    if not found:
        yield f"{table}: nothing is unpublished"
    for each in found:
        yield (
            f"{table}: {each.commits} commits of {each.group} are unpublished; {each.ref} is at "
            f"{each.published}"
        )
        for commit in each.failed:
            yield f"{utc(commit.timestamp_ms)[:19]}Z  {commit.snapshot}  {described(commit.failed)}"
        yield f"look at them: SELECT * FROM {relation(catalog, table, each.branch)}"
        if not each.forward:
            yield (
                f"{each.ref} was committed to since: they cannot be published, only thrown away "
                f"and made again"
            )
