"""Tags of the sink: scheduled ones that are due or too old, and the one at the last commit, in the swap of a commit."""

from __future__ import annotations

import logging
import time

from connectors.iceberg.catalog.table_update import PreparedCommit
from connectors.iceberg.protocol.commit_request import CommitRequest
from connectors.iceberg.protocol.table_metadata import TableMetadata

log = logging.getLogger(__name__)


def update_tags(prepared: PreparedCommit, base: TableMetadata, request: CommitRequest, target: str) -> None:
    """Tag the head before this commit if it is the last state of a period, and remove what outlived its rule.

    A tag names what readers of the ref saw when the period ended. A table without commits since then gets it with the
    next one. A tag of this name that is there stays: another connector of the table may have set it.

    The ledger tag moves to this commit. Without readers of this commit (`target`) there is no other tag.
    """
    table, ref, last = request.table, request.ref, request.ledger_tag
    if last is not None and request.keep_ledger_tag:
        prepared.set_tag(last, prepared.snapshot_id, None)
    elif last in base.tags:
        prepared.remove_ref(str(last))
    if target == request.unpublished_branch:
        return
    now_ms, head = int(time.time() * 1000), base.head(ref)
    for rule in request.tags:
        start = rule.period.start(now_ms)
        kept_from = None if rule.keep_ms is None else now_ms - rule.keep_ms
        name = rule.period.name_before(start, ref)
        if head is not None and (kept_from or 0) <= head["timestamp-ms"] < start and name not in base.refs:
            prepared.set_tag(name, head["snapshot-id"], rule.keep_ms)
            log.info("table %s: tag %s is set at snapshot %d", table, name, head["snapshot-id"])
        for tag in base.tags:
            snapshot = base.snapshots.get(base.refs[tag])
            if kept_from and snapshot and snapshot["timestamp-ms"] < kept_from and rule.period.is_name(tag, ref):
                prepared.remove_ref(tag)
                log.info("table %s: tag %s is older than its rule keeps it, and is removed", table, tag)
