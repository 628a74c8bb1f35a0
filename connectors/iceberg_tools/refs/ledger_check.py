"""What a change of a ref means for the connectors that write to the table: an answer from the
ledgers. Pure."""

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
    Standing.EXPIRED: "its commits before are expired, so it would not notice, and rows would be "
    "missing",
    Standing.LOST: "the commit that says what this snapshot holds is expired, so the connector "
    "would stop",
    Standing.REPLACED: "the snapshot has data that is not in its history, so the connector would "
    "stop",
    Standing.BRANCH_LOST: "its branch would be missing, so it would stop",
    Standing.NONE: "it would take the table for a new one",
}


@dataclass(frozen=True, slots=True)
class ReadAgain:
    """Offsets [first, next) of one partition that a connector reads again after a roll-back."""

    partition: TopicPartition
    first: int | None  # None: as at the first opening of the table, which is not known here
    next: int


@dataclass(frozen=True, slots=True)
class ConnectorEffect:
    """What one connector finds after the change."""

    group: str
    refused: str = ""  # why the change must not be made; empty: it may
    again: tuple[ReadAgain, ...] = ()

    def to_json(self) -> dict[str, Any]:
        again = {
            f"{each.partition.topic}:{each.partition.partition}": [each.first, each.next]
            for each in self.again
        }
        return {"group": self.group, "reads_again": again, "refused": self.refused or None}


def effects(
    metadata: TableMetadata, ref: str, snapshot: int | None, own: Mapping[str, str] | None = None
) -> list[ConnectorEffect]:
    """The connectors that commit to a ref, and what each finds when the ref is at another snapshot.

    Args: snapshot: where the ref is to be; None: it is removed. own: connect group -> ref, where
        the configuration says it. Other groups are at the ref of their last commit.

    Raises:
        LedgerFormatError: A newer version wrote a ledger, or a user edited it.
    """
    after = metadata.with_ref(ref, snapshot)
    found = []
    for key in sorted(metadata.properties):
        group = key.removeprefix(LEDGER_PREFIX)
        if key.startswith(LEDGER_PREFIX) and (own or {}).get(group, _ref_of(metadata, key)) == ref:
            now, then = look_up(metadata.view(ref, key)), look_up(after.view(ref, key))
            if now.version.property_snapshot is not None:
                found.append(_effect(group, now, then))
    return found


def _ref_of(metadata: TableMetadata, key: str) -> str:
    """The ref on which the group of a ledger property committed last; main, if that is not
    known."""
    here = [ref for ref in metadata.refs if ref not in metadata.tags and ref != MAIN]
    standing = {ref: look_up(metadata.view(ref, key)).standing for ref in [MAIN, *here]}
    return next((ref for ref, each in standing.items() if each is Standing.FOUND), MAIN)


def _effect(group: str, now: Lookup, then: Lookup) -> ConnectorEffect:
    if then.standing is Standing.FOUND and then.version == now.version:
        return ConnectorEffect(group)
    if then.standing in _REFUSED:
        return ConnectorEffect(group, _REFUSED[then.standing])
    return ConnectorEffect(group, again=tuple(_again(now, then)))


def _again(now: Lookup, then: Lookup) -> list[ReadAgain]:
    """What lies between two ledgers; without a later one, from where the table was opened."""
    if now.ledger is None:
        return []
    before = {**then.opened, **(then.ledger.positions() if then.ledger is not None else {})}
    found = []
    for partition, following in now.ledger.positions().items():
        first = before.get(partition)
        if first is None or first.next < following.next:
            found.append(
                ReadAgain(partition, None if first is None else first.next, following.next)
            )
    return found
