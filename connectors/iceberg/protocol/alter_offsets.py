"""Deliberate rewind or skip while the connector is STOPPED (rule 21 of the commit protocol).

The atomic step is one offset commit with a higher generation. The next coordinator opens the tables
at the floor, because their ledgers have a lower generation. Its first cycle also commits the new
generation to tables that receive no rows. If the tables were changed first, a crash could leave an
alteration incomplete.
"""

from __future__ import annotations

from collections.abc import Mapping

from connectors.iceberg.protocol.last_commits import LastCommits
from connectors.iceberg.protocol.ledger import Lookup
from connectors.iceberg.protocol.offset_metadata import GroupOffset, OffsetMetadata
from connectors.iceberg.protocol.positions import Epoch, TopicPartition


def altered_group(
    new_offsets: Mapping[TopicPartition, int],
    group: Mapping[TopicPartition, GroupOffset],
    lookups: Mapping[str, Lookup],
    topic_ids: Mapping[str, str],
    start_number: int,
    nonce: str,
) -> dict[TopicPartition, GroupOffset]:
    """Return the altered group offsets, which must be committed in one request.

    Before the first commit to any table, the offsets that a replaced connector left in the group
    also receive metadata. Otherwise, they would be ignored as soon as one partition has metadata.

    Args:
        new_offsets: The next offset to read by partition. For a reset, this is the log start
            offset. All other partitions retain their offset and metadata.
        group: The current group offsets.
        lookups: The ledgers of all known tables.
        topic_ids: The topic IDs by topic name.
        start_number: The connector's start number (`start_number` of its context).
        nonce: A unique string that distinguishes epochs with the same number.
    """
    if not any(lookup.ledger for lookup in lookups.values()):
        migrated = {p: offset.offset for p, offset in group.items() if offset.mark is None}
        new_offsets = {**migrated, **new_offsets}
    marks = {p: offset.mark for p, offset in group.items() if offset.mark}
    epochs = [mark.epoch.number for mark in marks.values()]
    epochs += [lookup.highest_epoch.number for lookup in lookups.values() if lookup.highest_epoch]
    epoch = Epoch(max([*epochs, start_number]) + 1, nonce)
    commits = LastCommits.of_marks(marks.values())
    if new_offsets.keys() >= marks.keys():
        # every table continues from the altered offsets, so earlier commits are irrelevant
        commits = LastCommits(since=epoch.number)
    last_commits = commits.to_text(len(new_offsets.keys() | group.keys()))
    altered: dict[TopicPartition, GroupOffset] = {}
    for partition, offset in new_offsets.items():
        ledgers = [lookup.ledger for lookup in lookups.values() if lookup.ledger]
        entries = [ledger.entry(partition) for ledger in ledgers]
        generations = [entry.generation for entry in entries if entry]
        if partition in marks:
            generations.append(marks[partition].generation)
        mark = OffsetMetadata(
            epoch, max(generations, default=0) + 1, topic_ids[partition.topic], commits=last_commits
        )
        altered[partition] = GroupOffset(offset, mark)
    return altered
