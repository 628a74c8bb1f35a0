"""A deliberate rewind or skip, while the connector is STOPPED (rule 21).

One group commit with the generation raised is the atomic point. Tables follow when the next
coordinator opens them: their ledger's generation lies below the connector's, so they need rows from
the floor; its first cycle brings those along that get no rows. Tables first, group last would be
half done after a crash.
"""

from __future__ import annotations

from collections.abc import Mapping

from connectors.iceberg.protocol.last_commits import LastCommits
from connectors.iceberg.protocol.ledger import Lookup
from connectors.iceberg.protocol.offset_metadata import GroupOffset, OffsetMetadata
from connectors.iceberg.protocol.positions import Epoch, TopicPartition


def altered_group(
    wanted: Mapping[TopicPartition, int],
    group: Mapping[TopicPartition, GroupOffset],
    lookups: Mapping[str, Lookup],
    topic_ids: Mapping[str, str],
    start_number: int,
    nonce: str,
) -> dict[TopicPartition, GroupOffset]:
    """What to commit to the group, in one request.

    `wanted`: the next offset to read per partition (a reset: the log's start). Partitions not in it
    keep their offset and mark; where nothing was ever written, offsets of another connector's get a
    mark, because beside one of ours they would count for nothing. `lookups` are those of all tables
    known; `nonce` is new.
    """
    if not any(found.ledger for found in lookups.values()):
        wanted = {
            **{p: offset.offset for p, offset in group.items() if offset.mark is None},
            **wanted,
        }
    marks = {p: offset.mark for p, offset in group.items() if offset.mark}
    epochs = [mark.epoch.number for mark in marks.values()]
    epochs += [found.highest_epoch.number for found in lookups.values() if found.highest_epoch]
    epoch = Epoch(max([*epochs, start_number]) + 1, nonce)
    commits = LastCommits.of_marks(marks.values())
    if wanted.keys() >= marks.keys():
        # from here on every table goes on from the altered offsets
        commits = LastCommits(since=epoch.number)
    text = commits.to_text(len(wanted.keys() | group.keys()))
    altered: dict[TopicPartition, GroupOffset] = {}
    for partition, offset in wanted.items():
        entries = [found.ledger.entry(partition) for found in lookups.values() if found.ledger]
        generations = [entry.generation for entry in entries if entry]
        if partition in marks:
            generations.append(marks[partition].generation)
        mark = OffsetMetadata(
            epoch, max(generations, default=0) + 1, topic_ids[partition.topic], commits=text
        )
        altered[partition] = GroupOffset(offset, mark)
    return altered
