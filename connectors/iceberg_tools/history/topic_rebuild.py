"""Spark driver steps that rebuild a table from its topics while its connector is running.

1. `begin` creates the branch `connect-py-rebuilt` at the head of the table and adds a snapshot that
   contains no rows. A crash leaves the branch, and the next run continues with it.
2. A connector with a separate group loads the topics into the branch, up to the positions in the
   table's ledger. A crash leaves commits by that group on the branch, and the next run continues
   after them.
3. `publish` adds a snapshot with the table's positions and no new rows to the branch, and moves the
   table's ref to it. Both changes are one compare-and-swap against metadata whose ledger has
   exactly these positions. A crash before the swap leaves the state of step 2. After the swap,
   readers see the rebuilt rows, and the branch is removed.

The table's connector detects at its next commit that the version of the table is different (rule 16
of the commit protocol). Its coordinator ends, and the next coordinator resumes at the same
positions. No row is committed twice or skipped, and staged rows are staged again.

If commits to the table are continuous, the rebuilt rows may be published at positions that precede
the positions in the table's ledger. This is a rollback to the rebuilt rows. The table property
still refers to the last commit before the swap, and the connector reads the later offsets again
(rule 8).
"""

from __future__ import annotations

import dataclasses
import logging
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from connectors.iceberg.catalog.java_errors import REFUSED, is_a
from connectors.iceberg.catalog.table_update import TableChange, TableUpdate
from connectors.iceberg.commit.partial_rows import open_pairs, open_pairs_key, open_pairs_property
from connectors.iceberg.errors import TableUnsuitableError
from connectors.iceberg.protocol.commit_request import COMMIT_ID_KEY
from connectors.iceberg.protocol.ledger import (
    Ledger,
    LedgerEntry,
    LedgerProperty,
    Lookup,
    TopicLedger,
    ledger_key,
    look_up,
    source_offsets_key,
)
from connectors.iceberg.protocol.own_refs import BEFORE_TAG, REBUILT_BRANCH
from connectors.iceberg.protocol.positions import TopicPartition
from connectors.iceberg.protocol.table_metadata import TableMetadata
from connectors.iceberg.table.table_history import REBUILD_KEY, loading_group

if TYPE_CHECKING:
    from connectors.iceberg.driver.lake_session import LakeSession

log = logging.getLogger(__name__)
_KEEP_BEFORE_MS: Final = 7 * 86_400_000
_ATTEMPTS: Final = 5  # attempts to create a branch while the connector commits


@dataclass(frozen=True, slots=True)
class TopicRebuild:
    """Connector whose table is rebuilt, and the ref of the table."""

    connector: str
    ref: str  # ref that the connector commits to
    group: str  # connect group of the connector


@dataclass(frozen=True, slots=True)
class LedgerPositions:
    """Positions in a table's ledger."""

    head: int
    reached: Mapping[TopicPartition, int]  # next offsets
    opened: Mapping[TopicPartition, int]  # first offset of each partition
    topic_ids: Mapping[str, str]


def begin(session: LakeSession, name: str, rebuild: TopicRebuild) -> tuple[str, bool]:
    """Create the branch unless an earlier run created it.

    Return the name of the connector that loads the branch, and True if the branch is new. Each
    branch has a separate connector, because the table's history contains ledgers of earlier
    rebuilds.

    Raises:
        TableUnsuitableError: The table has no ledger from this connector or has unpublished
            commits.
    """
    for attempt in range(1, _ATTEMPTS + 1):
        prepared = session.table(name).new_update()
        base = prepared.base()
        head = _positions(name, base, rebuild).head
        if base.has_unpublished(rebuild.ref):
            raise TableUnsuitableError(
                name,
                "has unpublished commits; publish or reject them first with `connect-py gate`",
            )
        if (existing_loader := _branch_loader(base, rebuild)) is not None:
            return existing_loader, False
        loader = f"{rebuild.connector}-rebuild-{uuid.uuid4().hex[:12]}"
        prepared.begin_branch(REBUILT_BRANCH, head)
        prepared.add(TableChange(replaces_all=True), REBUILT_BRANCH, {REBUILD_KEY: loader})
        try:
            prepared.swap({})
        except Exception as error:
            if not is_a(error, REFUSED) or attempt == _ATTEMPTS:
                raise
        else:
            return loader, True
    raise AssertionError("returned or raised")


def positions(session: LakeSession, name: str, rebuild: TopicRebuild) -> LedgerPositions:
    """Return the table's positions.

    Raises:
        TableUnsuitableError: The table has no ledger from this connector.
    """
    return _positions(name, session.table(name).metadata(), rebuild)


def publish(
    session: LakeSession,
    name: str,
    rebuild: TopicRebuild,
    loader: str,
    reached: Mapping[TopicPartition, int],
    *,
    behind: bool,
) -> int | None:
    """Move the table's ref to the rebuilt rows.

    Return the new head, or None if there was another commit to the table.

    Args:
        loader: The connector that loaded the branch.
        reached: Next offsets of the branch.
        behind: Whether the table's ledger may be ahead of the branch.

    Raises:
        TableUnsuitableError: The branch does not exist or is ahead of the table.
    """
    prepared = session.table(name).new_update()
    base = prepared.base()
    now = _positions(name, base, rebuild)
    if any(now.reached.get(tp, 0) < offset for tp, offset in reached.items()):
        raise TableUnsuitableError(
            name, f"was rolled back during the rebuild; remove branch {REBUILT_BRANCH} and retry"
        )
    is_behind = dict(now.reached) != dict(reached)
    if is_behind and not behind:
        return None
    if _branch_loader(base, rebuild) != loader:
        raise TableUnsuitableError(
            name, f"branch {REBUILT_BRANCH} was removed or changed during the rebuild"
        )
    key, loading_key = ledger_key(rebuild.group), ledger_key(loading_group(loader))
    lookup = look_up(base.view(rebuild.ref, key))
    assert lookup.ledger is not None
    ledger = following(lookup.ledger, look_up(base.view(REBUILT_BRANCH, key)), reached)
    summary = {key: ledger.to_json(), COMMIT_ID_KEY: ledger.commit, REBUILD_KEY: loader}
    if ledger.repeats_offsets:
        summary[source_offsets_key(rebuild.group)] = ledger.source_offsets()
    if (pairs := open_pairs(base, loading_key, REBUILT_BRANCH)) is not None:
        summary[open_pairs_key(key)] = pairs
    prepared.stand_on(rebuild.ref, base.refs[REBUILT_BRANCH], summary)
    prepared.remove_ref(REBUILT_BRANCH)
    keep_before_rebuild(prepared, base, now.head)
    prepared.drop_properties([loading_key, open_pairs_key(loading_key)])
    ledger_property = LedgerProperty(ledger, prepared.snapshot_id, lookup.opened).to_json()
    try:
        prepared.swap(
            {} if is_behind else {key: ledger_property, **open_pairs_property(base, key, summary)}
        )
    except Exception as error:
        if is_a(error, REFUSED):
            return None
        raise
    log.info("table %s: moved %s from snapshot %d to the rebuilt rows", name, rebuild.ref, now.head)
    return prepared.snapshot_id


def _positions(name: str, metadata: TableMetadata, rebuild: TopicRebuild) -> LedgerPositions:
    lookup = look_up(metadata.view(rebuild.ref, ledger_key(rebuild.group)))
    head = metadata.head(rebuild.ref)
    if lookup.ledger is None or head is None:
        raise TableUnsuitableError(
            name, f"has no ledger for {rebuild.group}, so its contents are unknown"
        )
    return LedgerPositions(
        int(head["snapshot-id"]),
        {tp: position.next for tp, position in lookup.ledger.positions().items()},
        {tp: position.next for tp, position in lookup.opened.items()},
        {topic: each.topic_id for topic, each in lookup.ledger.topics.items()},
    )


def _branch_loader(metadata: TableMetadata, rebuild: TopicRebuild) -> str | None:
    """Return the connector that loads the branch, or None if there is no unfinished rebuild."""
    if REBUILT_BRANCH not in metadata.refs:
        return None
    for snapshot in metadata.ancestors(metadata.head(REBUILT_BRANCH)):
        summary = snapshot["summary"]
        if REBUILD_KEY in summary:
            return None if ledger_key(rebuild.group) in summary else str(summary[REBUILD_KEY])
    return None


def keep_before_rebuild(prepared: TableUpdate, base: TableMetadata, snapshot: int) -> None:
    """Tag the snapshot that is about to be replaced, to retain it for seven days."""
    age = max(0, int(time.time() * 1000) - int(base.snapshots[snapshot]["timestamp-ms"]))
    prepared.set_tag(BEFORE_TAG, snapshot, age + _KEEP_BEFORE_MS)


def following(ledger: Ledger, below: Lookup, reached: Mapping[TopicPartition, int]) -> Ledger:
    """Return the ledger of the commit after the last one on the branch, with `reached` offsets."""
    topics = {}
    for name, topic in ledger.topics.items():
        entries = {}
        for number, entry in topic.partitions.items():
            offset = reached.get(TopicPartition(name, number))
            if offset is None:  # the branch does not have this partition
                continue
            before = (
                None
                if below.ledger is None
                else below.ledger.entry(TopicPartition(name, number), topic.topic_id)
            )
            follows = (
                before is not None
                and before.generation == entry.generation
                and before.next <= offset
            )
            base = before.next if follows and before is not None else offset
            entries[number] = LedgerEntry(entry.generation, base, offset)
        topics[name] = TopicLedger(topic.topic_id, entries)
    return dataclasses.replace(ledger, commit=str(uuid.uuid4()), topics=topics)
