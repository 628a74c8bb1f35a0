"""Determine how moving a ref affects the connectors that commit to the table. Does no I/O."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from connectors.iceberg.protocol.commit_request import MAIN
from connectors.iceberg.protocol.ledger import Lookup, Standing, look_up
from connectors.iceberg.protocol.positions import TopicPartition
from connectors.iceberg.protocol.table_metadata import TableMetadata
from connectors.iceberg.table.table_history import LEDGER_PREFIX

_REFUSED: Final = {
    Standing.EXPIRED: "the commits before this snapshot have expired, so the connector would not "
    "detect the change, and rows would be missing",
    Standing.LOST: "the commit with the positions of this snapshot has expired, so the connector "
    "would stop",
    Standing.REPLACED: "the snapshot has data that is not in its history, so the connector "
    "would stop",
    Standing.BRANCH_LOST: "the branch would be missing, so the connector would stop",
    Standing.NONE: "the connector would treat the table as a new one",
}


@dataclass(frozen=True, slots=True)
class ReadAgain:
    """Offsets [first, next) of one partition that a connector reads again after a rollback."""

    partition: TopicPartition
    first: int | None  # None for the table's first offset, which is unknown here
    next: int


@dataclass(frozen=True, slots=True)
class ConnectorEffect:
    """Effect of a ref change on one connector."""

    group: str
    refused: str = ""  # reason why the change must not be applied; empty if it is allowed
    again: tuple[ReadAgain, ...] = ()

    def to_json(self) -> dict[str, Any]:
        again = {
            f"{each.partition.topic}:{each.partition.partition}": [each.first, each.next]
            for each in self.again
        }
        return {"group": self.group, "reads_again": again, "refused": self.refused or None}


def effects(
    metadata: TableMetadata,
    ref: str,
    snapshot: int | None,
    group_refs: Mapping[str, str] | None = None,
) -> list[ConnectorEffect]:
    """Return how moving a ref to a snapshot affects each connector that commits to the ref.

    Args:
        snapshot: The new snapshot, or None if the ref is removed.
        group_refs: Configured commit refs by connect group. Any other group commits to the ref of
            its last commit.

    Raises:
        LedgerFormatError: A ledger was written by a newer version or edited by a user.
    """
    after = metadata.with_ref(ref, snapshot)
    result = []
    for key in sorted(metadata.properties):
        group = key.removeprefix(LEDGER_PREFIX)
        if (
            key.startswith(LEDGER_PREFIX)
            and (group_refs or {}).get(group, _ref_of(metadata, key)) == ref
        ):
            now, then = look_up(metadata.view(ref, key)), look_up(after.view(ref, key))
            if now.version.property_snapshot is not None:
                result.append(_effect(group, now, then))
    return result


def _ref_of(metadata: TableMetadata, key: str) -> str:
    """Return the ref of the last commit in a ledger property, or main if it is unknown."""
    branches = [ref for ref in metadata.refs if ref not in metadata.tags and ref != MAIN]
    standing = {ref: look_up(metadata.view(ref, key)).standing for ref in [MAIN, *branches]}
    return next((ref for ref, each in standing.items() if each is Standing.FOUND), MAIN)


def _effect(group: str, now: Lookup, then: Lookup) -> ConnectorEffect:
    if then.standing is Standing.FOUND and then.version == now.version:
        return ConnectorEffect(group)
    if then.standing in _REFUSED:
        return ConnectorEffect(group, _REFUSED[then.standing])
    return ConnectorEffect(group, again=tuple(_ranges_to_read_again(now, then)))


def _ranges_to_read_again(now: Lookup, then: Lookup) -> list[ReadAgain]:
    """Return each partition's offset range between the positions in two ledgers."""
    if now.ledger is None:
        return []
    before = {**then.opened, **(then.ledger.positions() if then.ledger is not None else {})}
    ranges = []
    for partition, following in now.ledger.positions().items():
        first = before.get(partition)
        if first is None or first.next < following.next:
            ranges.append(
                ReadAgain(partition, None if first is None else first.next, following.next)
            )
    return ranges
