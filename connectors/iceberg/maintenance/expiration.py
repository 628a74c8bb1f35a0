"""Snapshot expiration through Iceberg's API, in the Spark driver that runs the commits.

Iceberg commits the new metadata before it deletes files. A crash in between leaves unreferenced
files. The next epoch removes files with the sink's prefix (rule 18 of the commit protocol). The
search for orphan files removes manifests and the files that other writers created.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from connectors.iceberg.commit.rules import aggregates, rejected_rows
from connectors.iceberg.config.maintenance_policy import CREATED_KEY, HOURS
from connectors.iceberg.protocol.commit_request import MAIN
from connectors.iceberg.protocol.faults import fault_point
from connectors.iceberg.protocol.ledger import LedgerFormatError, LedgerProperty, ledger_key

if TYPE_CHECKING:
    from connectors.iceberg.catalog.java_catalog import JavaTable
    from connectors.iceberg.config.maintenance_policy import MaintenancePolicy
    from connectors.iceberg.driver.lake_session import LakeSession
    from connectors.iceberg.protocol.table_metadata import TableMetadata

log = logging.getLogger(__name__)

BEFORE_EXPIRATION, AFTER_EXPIRATION = "before_expiration", "after_expiration"  # fault points
# prefixes of table properties with ledgers
_LEDGERS: Final = (ledger_key(""), aggregates.LEDGER, rejected_rows.LEDGER)
_YOUNG_MS: Final = HOURS  # younger snapshots never expire, because readers may still use them


@dataclass(frozen=True, slots=True)
class ExpirationOutcome:
    """Result of one expiration."""

    expired: int
    remaining: int
    seconds: float
    reason: str = ""  # why nothing expired


def ledger_snapshots(metadata: TableMetadata) -> frozenset[int]:
    """Return the IDs of the snapshots that connectors' ledgers reference."""
    snapshots = set()
    for key, text in metadata.properties.items():
        if key.startswith(_LEDGERS):
            try:
                snapshots.add(LedgerProperty.from_json(text).snapshot)
            except LedgerFormatError:  # a newer version wrote it and protects its snapshot
                log.debug("table %s: property %s is not a ledger", metadata.location, key)
    return frozenset(snapshots)


def expired_snapshots(
    metadata: TableMetadata, policy: MaintenancePolicy, ledgers: Collection[int], now_ms: int
) -> list[int]:
    """Return the IDs of the snapshots that may expire now, oldest first.

    A snapshot expires at the age `keep`, or earlier if there are at least `snapshots` newer
    snapshots. The following snapshots do not expire: the newest `keep-snapshots` snapshots of the
    table and of each branch, snapshots younger than one hour, and snapshots that a tag, a branch,
    or a ledger references.
    """
    limit = policy.auto_snapshots
    if not limit:
        return []
    newest_first = sorted(
        metadata.snapshots.values(),
        key=lambda each: (each["timestamp-ms"], each.get("sequence-number", 0)),
        reverse=True,
    )
    retained = {*metadata.refs.values(), *ledgers}
    retained |= {int(each["snapshot-id"]) for each in newest_first[: policy.keep_snapshots]}
    for name in metadata.refs.keys() - metadata.tags:
        for position, each in enumerate(metadata.ancestors(metadata.head(name))):
            if position == policy.keep_snapshots:
                break
            retained.add(int(each["snapshot-id"]))
    expired = []
    for position, each in enumerate(newest_first):
        age_ms = now_ms - each["timestamp-ms"]
        is_due = age_ms > policy.keep_ms or position >= limit
        if is_due and age_ms > _YOUNG_MS and each["snapshot-id"] not in retained:
            expired.append(int(each["snapshot-id"]))
    return expired[::-1]


def expire(
    session: LakeSession, name: str, policy: MaintenancePolicy, ref: str = MAIN
) -> ExpirationOutcome:
    """Expire snapshots of a table that the sink created. Runs in the driver.

    Raises:
        ConnectError: The catalog does not respond.
    """
    fault_point("catalog_expire")
    started = time.monotonic()
    table = session.table(name)
    metadata = table.metadata()
    if reason := refusal(metadata, ref):
        return ExpirationOutcome(0, len(metadata.snapshots), time.monotonic() - started, reason)
    snapshots = expired_snapshots(
        metadata, policy, ledger_snapshots(metadata), int(time.time() * 1000)
    )
    if snapshots:
        fault_point(BEFORE_EXPIRATION)
        _expire(table, metadata, snapshots, policy.keep_snapshots)
        fault_point(AFTER_EXPIRATION)
    remaining = len(table.refresh().snapshots)
    return ExpirationOutcome(len(snapshots), remaining, time.monotonic() - started)


def refusal(metadata: TableMetadata, ref: str) -> str:
    """Return the reason no snapshot of a table may expire, or an empty string if some may."""
    if metadata.properties.get(CREATED_KEY, "").lower() != "true":
        return f"the table does not have the property {CREATED_KEY}"
    if metadata.properties.get("gc.enabled", "true").lower() == "false":
        return "the table property gc.enabled is false"
    if metadata.has_unpublished(ref):
        return "commits await approval"
    return ""


def _expire(
    table: JavaTable, metadata: TableMetadata, snapshots: Sequence[int], keep_snapshots: int
) -> None:
    """Expire exactly these snapshots.

    If snapshots expire by age, Iceberg finds the files to delete in the changed manifests. If they
    expire by ID, Iceberg reads every manifest of the table. Therefore, IDs are used only if no age
    limit selects exactly these snapshots.
    """
    update = table.java_table.expireSnapshots()
    older_than = 1 + max(metadata.snapshots[each]["timestamp-ms"] for each in snapshots)
    if sorted(_expired_by_age(metadata, older_than, keep_snapshots)) == sorted(snapshots):
        update.expireOlderThan(older_than).retainLast(keep_snapshots).commit()
        return
    for each in snapshots:
        update.expireSnapshotId(each)
    update.expireOlderThan(0).retainLast(keep_snapshots).commit()  # 0: expire only these IDs


def _expired_by_age(metadata: TableMetadata, older_than_ms: int, keep_snapshots: int) -> list[int]:
    """Return the IDs of the snapshots that Iceberg would expire by age."""
    retained = {number for name, number in metadata.refs.items() if name in metadata.tags}
    for name in metadata.refs.keys() - metadata.tags:
        for position, each in enumerate(metadata.ancestors(metadata.head(name))):
            if position < keep_snapshots or each["timestamp-ms"] >= older_than_ms:
                retained.add(int(each["snapshot-id"]))
    return [
        number
        for number, each in metadata.snapshots.items()
        if number not in retained and each["timestamp-ms"] < older_than_ms
    ]
