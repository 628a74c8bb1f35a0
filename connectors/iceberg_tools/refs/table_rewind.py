"""A rewind of one table, in the Spark driver: one compare-and-swap that moves the table and its
positions together.

- `REPLAY`: the branch goes back; its ledger is an older one then, and the connector reads again
  from there (rule 8).
- `SKIP`: on the snapshot that the branch goes back to stands a new one without rows, whose ledger
  has the positions of before the rewind. The table goes on from now, without the rows in between
  (rule 33).

A crash before the swap leaves the table as it was, one after it the table rewound. Running it again
finds that out: the head is the snapshot that was asked for, or a skip that stands on it.
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
    """What becomes of the rows between the state that a table goes back to, and now."""

    REPLAY = "replay"
    SKIP = "skip"


@dataclass(frozen=True, slots=True)
class RewindRequest:
    """One table goes back."""

    ref: str
    head: int  # that was looked at; another one refuses
    snapshot: int
    mode: RewindMode
    property_key: str  # of the connector's ledger
    group: str


def is_rewound(metadata: TableMetadata, request: RewindRequest) -> bool:
    """Whether it was done before."""
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
    """Rewind a table; returns the head that it has then.

    Raises:
        TableUnsuitableError: `prepare_back`, or the connector has no ledger in the table.
    """
    metadata = session.table(name).metadata()
    if is_rewound(metadata, request):
        return metadata.refs.get(request.ref, request.snapshot)
    own = {request.group: request.ref}
    if request.mode is RewindMode.REPLAY:
        move_branch(session, name, request.ref, request.head, request.snapshot, own)
        return request.snapshot
    prepared, base = prepare_back(session, name, request.ref, request.head, request.snapshot, own)
    lookup = look_up(base.view(request.ref, request.property_key))
    if lookup.ledger is None:
        raise TableUnsuitableError(
            name, f"has no ledger of {request.group}: there are no positions to keep"
        )
    ledger = skipping(lookup.ledger)
    summary = skip_summary(
        base.with_ref(request.ref, request.snapshot), request.ref, request.group, ledger
    )
    prepared.stand_on(request.ref, request.snapshot, summary)
    text = LedgerProperty(ledger, prepared.snapshot_id, lookup.opened).to_json()
    properties = {
        request.property_key: text,
        **open_pairs_property(base, request.property_key, summary),
    }
    swap_once(prepared, name, request.ref, properties)
    log.info(
        "table %s: %s went back to snapshot %d, and skips to now",
        name,
        request.ref,
        request.snapshot,
    )
    return prepared.snapshot_id


def skip_summary(earlier: TableMetadata, ref: str, group: str, ledger: Ledger) -> dict[str, str]:
    """What the snapshot says that keeps these positions on a ref; `earlier`: the table with the ref
    where it goes."""
    key = ledger_key(group)
    summary = {key: ledger.to_json(), COMMIT_ID_KEY: ledger.commit, REWIND_KEY: "skip"}
    if ledger.repeats_offsets:
        summary[source_offsets_key(group)] = ledger.source_offsets()
    if (pairs := open_pairs(earlier, key, ref)) is not None:
        summary[open_pairs_key(key)] = pairs
    return summary


def skipping(ledger: Ledger) -> Ledger:
    """The positions of a ledger, as those of a commit that covers nothing."""
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
