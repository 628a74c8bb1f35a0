"""`connect-py gate`: lists, publishes, or rejects commits that await approval."""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from typing import TYPE_CHECKING, Annotated

import typer

from connect_py.api.command import CommandContext, command
from connect_py.api.errors import ConfigError
from connect_py.plurals import pluralize
from connectors.iceberg_tools.commands.table_options import Branch, Group, LocalTable, TableOptions

if TYPE_CHECKING:
    from connectors.iceberg.protocol.table_metadata import TableMetadata
    from connectors.iceberg_tools.refs.gate_decision import UnpublishedCommits

WAITING, REFUSED, UNDECIDED = 1, 1, 2


class Reject(Enum):
    """Treatment of the rows in rejected commits."""

    REPLAY = "replay"
    DROP = "drop"
    DEAD_LETTER = "dead-letter"
    SKIP = "skip"


@command(json=True, failure_status=UNDECIDED)
def gate(
    context: CommandContext,
    source: TableOptions,
    publish: Annotated[
        bool, typer.Option("--publish", help="Publish all commits unchanged.")
    ] = False,
    reject: Annotated[
        Reject | None,
        typer.Option(
            help="Discard the commits. Their rows are read and checked again (replay), read again "
            "without the failing rows (drop), read again with the failing rows stored as "
            "dead-letter records (dead-letter), or not read again (skip)."
        ),
    ] = None,
    group: Group = None,
    branch: Branch = None,
) -> None:
    """List, publish, or reject the commits of a table that await approval.

    A commit awaits approval if a check with the action `hold` failed. The connector can continue to
    run. Exit status 0: no commit awaits approval, or the decision was applied; 1: commits await
    approval, or the decision was refused; 2: unknown (the table, branch, or group does not exist,
    or the catalog does not respond).
    """
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
    table, local = source.table, source.local_table(context)
    with local.open() as lake:
        commits = _unpublished(lake.run(table, read_metadata), local, group, branch)
        refused = ""
        if decision is not None and len(commits) > 1:
            refused = f"select one group with --group: {', '.join(each.group for each in commits)}"
        elif decision is not None and commits:
            request = DecisionRequest(decision, commits[0])
            refused = why_not(request)
            if not refused:
                lake.run(table, decide, request)
    applied = decision.value if decision is not None and commits and not refused else None
    lines = list(_lines(table, local.spark.catalog, commits))
    if applied:
        lines.append(_OUTCOMES[applied].format(each=commits[0]))
    document = {
        "table": table,
        "unpublished": [each.to_json() for each in commits],
        "refused": refused or None,
        "decision": applied,
    }
    context.show(document, lines)
    if refused:
        context.warn(f"table {table}: {refused}")
    raise typer.Exit(WAITING if refused or (commits and not applied) else 0)


_OUTCOMES = {
    "publish": "published: {each.ref} is at snapshot {each.head}",
    "replay": "rejected: the connector reads these rows again",
    "drop": "rejected: the connector reads these rows again and drops the failing rows",
    "dead-letter": "rejected: the connector reads these rows again and stores the failing rows "
    "as dead-letter records",
    "skip": "rejected: the connector continues without these rows",
}


def _unpublished(
    metadata: TableMetadata, local: LocalTable, group: str | None, branch: str | None
) -> list[UnpublishedCommits]:
    """Return the unpublished commits of a group, or of all groups.

    Raises:
        ConfigError: The group has not committed to the table, the branch does not exist, or the
            unpublished commits are for another branch.
    """
    from connectors.iceberg.protocol.own_refs import OWN_REFS
    from connectors.iceberg_tools.refs.gate_decision import groups_of, unpublished_commits

    requested_group, groups = group or local.group, groups_of(metadata)
    if requested_group is not None and requested_group not in groups:
        existing = f"existing groups: {', '.join(groups)}" if groups else "no connector has"
        raise ConfigError(
            "--group" if group else "--config",
            f"{requested_group} has not committed to {local.table}; {existing}",
        )
    branches = {
        "main",
        *(name for name in metadata.refs if not name.startswith(OWN_REFS)),
    } - metadata.tags
    # applies to groups whose commit ref is not recorded in the table
    ref = branch if branch is not None and branch in branches else local.ref
    group_refs = dict.fromkeys(groups if requested_group is None else [requested_group], ref)
    commits = unpublished_commits(metadata, group_refs)
    if branch is not None and branch not in branches | {each.ref for each in commits}:
        raise ConfigError("--branch", f"the table has no branch {branch}")
    for each in commits:
        if branch not in (None, each.ref):
            raise ConfigError(
                "--branch", f"the unpublished commits of {each.group} are for {each.ref}"
            )
    return commits


def _lines(table: str, catalog: str, commits: list[UnpublishedCommits]) -> Iterator[str]:
    from connectors.iceberg.catalog.sql_names import relation
    from connectors.iceberg.commit.rules.expectations import described
    from connectors.iceberg_tools.history.snapshot_entry import utc

    if not commits:
        yield f"{table}: no commits await approval"
    for each in commits:
        yield (
            f"{table}: {pluralize(each.commits, 'unpublished commit')} of {each.group}; "
            f"{each.ref} is at {each.published}"
        )
        for commit in each.failed:
            yield f"{utc(commit.timestamp_ms)[:19]}Z  {commit.snapshot}  {described(commit.failed)}"
        yield f"inspect them: SELECT * FROM {relation(catalog, table, each.branch)}"
        if not each.forward:
            yield (
                f"{each.ref} has newer commits, so these commits cannot be published; reject them, "
                "and the connector repeats them"
            )
