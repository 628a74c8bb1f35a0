"""Rewind one table. Runs in the Spark driver.

One compare-and-swap moves the table and its positions:

- `REPLAY`: the branch moves back to a snapshot with an older ledger, and the connector reads again
  from the positions in that ledger (rule 8 of the commit protocol).
- `SKIP`: a new snapshot without rows is added on top of the earlier snapshot. Its ledger contains
  the positions from before the rewind. The connector continues there, and the table lacks the rows
  in between (rule 33).

A crash before the swap leaves the table unchanged; a crash after it leaves the table rewound. A
repeated run detects a rewound table by its head, which is the requested snapshot or a skip snapshot
whose parent is the requested snapshot.
"""

from __future__ import annotations

import dataclasses
import logging
import uuid
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from connectors.iceberg.commit.partial_rows import open_pairs, open_pairs_key, open_pairs_property
from connectors.iceberg.errors import TableUnsuitableError
from connectors.iceberg.protocol.commit_request import COMMIT_ID_KEY
from connectors.iceberg.protocol.ledger import (
    Ledger,
    LedgerProperty,
    TopicLedger,
    ledger_key,
    look_up,
    source_offsets_key,
)
from connectors.iceberg.protocol.table_metadata import TableMetadata
from connectors.iceberg.table.table_history import REWIND_KEY
from connectors.iceberg_tools.refs.ref_changes import move_branch, prepare_back, swap_once

if TYPE_CHECKING:
    from connectors.iceberg.driver.lake_session import LakeSession

log = logging.getLogger(__name__)


class RewindMode(Enum):
    """Handling of the rows between the earlier state of a table and its current state."""

    REPLAY = "replay"
    SKIP = "skip"


@dataclass(frozen=True, slots=True)
class RewindRequest:
    """Describes the rewind of one table."""

    ref: str
    head: int  # head when the user inspected the table; the rewind is refused if it has changed
    snapshot: int
    mode: RewindMode
    property_key: str  # key of the connector's ledger
    group: str


def is_rewound(metadata: TableMetadata, request: RewindRequest) -> bool:
    """Return True if an earlier run has already rewound the table."""
    head = metadata.head(request.ref)
    if head is None:
        return False
    if request.mode is RewindMode.REPLAY:
        return bool(head["snapshot-id"] == request.snapshot)
    return (
        head["summary"].get(REWIND_KEY) == "skip"
        and head.get("parent-snapshot-id") == request.snapshot
    )


def rewind(session: LakeSession, name: str, request: RewindRequest) -> int:
    """Rewind a table and return its new head.

    Raises:
        TableUnsuitableError: See `prepare_back`. Also raised if the connector has no ledger in the
            table.
    """
    metadata = session.table(name).metadata()
    if is_rewound(metadata, request):
        return metadata.refs.get(request.ref, request.snapshot)
    group_refs = {request.group: request.ref}
    if request.mode is RewindMode.REPLAY:
        move_branch(session, name, request.ref, request.head, request.snapshot, group_refs)
        return request.snapshot
    prepared, base = prepare_back(
        session, name, request.ref, request.head, request.snapshot, group_refs
    )
    lookup = look_up(base.view(request.ref, request.property_key))
    if lookup.ledger is None:
        raise TableUnsuitableError(
            name, f"has no ledger for {request.group}, so there are no positions to preserve"
        )
    ledger = skipping(lookup.ledger)
    summary = skip_summary(
        base.with_ref(request.ref, request.snapshot), request.ref, request.group, ledger
    )
    prepared.stand_on(request.ref, request.snapshot, summary)
    ledger_property = LedgerProperty(ledger, prepared.snapshot_id, lookup.opened).to_json()
    properties = {
        request.property_key: ledger_property,
        **open_pairs_property(base, request.property_key, summary),
    }
    swap_once(prepared, name, request.ref, properties)
    log.info(
        "table %s: moved %s back to snapshot %d, skipping to the current positions",
        name,
        request.ref,
        request.snapshot,
    )
    return prepared.snapshot_id


def skip_summary(earlier: TableMetadata, ref: str, group: str, ledger: Ledger) -> dict[str, str]:
    """Return the summary of a snapshot that sets a ref's positions without adding rows.

    Args:
        earlier: Metadata in which the ref points to the snapshot that precedes the new one.
    """
    key = ledger_key(group)
    summary = {key: ledger.to_json(), COMMIT_ID_KEY: ledger.commit, REWIND_KEY: "skip"}
    if ledger.repeats_offsets:
        summary[source_offsets_key(group)] = ledger.source_offsets()
    if (pairs := open_pairs(earlier, key, ref)) is not None:
        summary[open_pairs_key(key)] = pairs
    return summary


def skipping(ledger: Ledger) -> Ledger:
    """Return a ledger with the same positions, for a new commit that covers no offsets."""
    topics = {
        name: TopicLedger(
            topic.topic_id,
            {
                p: dataclasses.replace(entry, base=entry.next)
                for p, entry in topic.partitions.items()
            },
        )
        for name, topic in ledger.topics.items()
    }
    return dataclasses.replace(ledger, commit=str(uuid.uuid4()), topics=topics)
