"""A deliberate rewind or skip, while the connector is STOPPED (rule 21).

One group commit with the generation raised is the atomic point. Known tables are brought along afterwards;
tables that are missed (a crash, not known yet) follow when a coordinator opens them: their ledger's
generation lies below the connector's, so they need rows from the floor. Tables first, group last would be
half done after a crash.
"""

from __future__ import annotations

from collections.abc import Mapping

from connectors.iceberg.protocol.actions import CommitRequest
from connectors.iceberg.protocol.ledger import Ledger, LedgerEntry, Lookup, TopicLedger
from connectors.iceberg.protocol.mark import GroupOffset, Mark
from connectors.iceberg.protocol.positions import Epoch, Position, TopicPartition


def altered_group(
    wanted: Mapping[TopicPartition, int],
    group: Mapping[TopicPartition, GroupOffset],
    lookups: Mapping[str, Lookup],
    topic_ids: Mapping[str, str],
    start_number: int,
    nonce: str,
) -> dict[TopicPartition, GroupOffset]:
    """What to commit to the group, in one request.

    `wanted`: the next offset to read per partition (a reset: the log's start). Partitions not in it keep
    their offset and mark. `lookups` are those of all tables known; `nonce` is new.
    """
    marks = {p: offset.mark for p, offset in group.items() if offset.mark}
    epochs = [mark.epoch.number for mark in marks.values()]
    epochs += [found.highest_epoch.number for found in lookups.values() if found.highest_epoch]
    epoch = Epoch(max([*epochs, start_number]) + 1, nonce)
    altered: dict[TopicPartition, GroupOffset] = {}
    for partition, offset in wanted.items():
        entries = [found.ledger.entry(partition) for found in lookups.values() if found.ledger]
        generations = [entry.generation for entry in entries if entry]
        if partition in marks:
            generations.append(marks[partition].generation)
        mark = Mark(epoch, max(generations, default=0) + 1, topic_ids[partition.topic])
        altered[partition] = GroupOffset(offset, mark)
    return altered


def bring_along(
    table: str, lookup: Lookup, altered: Mapping[TopicPartition, GroupOffset], cluster: str, commit: str
) -> CommitRequest | None:
    """A commit without files that takes a table to the altered positions. None: it has no ledger, leave it.

    A conflict is no failure: whoever opens the table brings it along.
    """
    if lookup.ledger is None or not altered:
        return None
    topics = {name: dict(topic.partitions) for name, topic in lookup.ledger.topics.items()}
    ids = {name: topic.topic_id for name, topic in lookup.ledger.topics.items()}
    opened = dict(lookup.opened)
    epoch = lookup.ledger.epoch
    for partition, offset in altered.items():
        assert offset.mark is not None
        epoch = max(epoch, offset.mark.epoch)
        if ids.setdefault(partition.topic, offset.mark.topic_id) != offset.mark.topic_id:
            continue  # the table still speaks of the topic before; its next coordinator decides
        entry = LedgerEntry(offset.mark.generation, offset.offset, offset.offset)
        topics.setdefault(partition.topic, {})[partition.partition] = entry
        opened.setdefault(partition, Position(offset.mark.generation, offset.offset))
    ledger = Ledger(
        epoch,
        commit,
        lookup.ledger.cycle,
        lookup.version.uuid,
        cluster,
        {name: TopicLedger(ids[name], entries) for name, entries in topics.items()},
    )
    return CommitRequest(table, commit, ledger.cycle, lookup.version, ledger, opened, {}, None)
