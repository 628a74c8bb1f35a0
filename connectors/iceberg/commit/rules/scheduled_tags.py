"""`ScheduledTags`: maintains a table's scheduled tags, and the tag on the last commit."""

from __future__ import annotations

import logging
import time

from connectors.iceberg.catalog.table_update import TableUpdate
from connectors.iceberg.commit.attempt import Attempt
from connectors.iceberg.commit.rules.rule import CommitRule

log = logging.getLogger(__name__)


class ScheduledTags(CommitRule):
    """Tags the last state of each hour, day, week, or month, and removes tags that are too old."""

    def amend(self, attempt: Attempt, update: TableUpdate) -> None:
        """Move the ledger tag, which marks the last commit, and update the scheduled tags.

        The previous head is tagged if it is the last snapshot of a period. A tag points to the
        snapshot that readers of the ref saw at the end of the period. The first commit after the
        end of the period sets the tag. An existing tag is never moved, because another connector
        that writes to the table may have set it. A commit that awaits approval does not change
        scheduled tags.
        """
        request, base = attempt.request, update.base()
        ledger_tag = request.ledger_tag
        if ledger_tag is not None and request.keep_ledger_tag:
            update.set_tag(ledger_tag, update.snapshot_id, None)
        elif ledger_tag in base.tags:
            update.remove_ref(str(ledger_tag))
        if attempt.target_ref == request.unpublished_branch:
            return
        ref, head = request.ref, base.head(request.ref)
        now_ms = int(time.time() * 1000)
        for rule in request.tags:
            start = rule.period.start(now_ms)
            oldest_ms = 0 if rule.keep_ms is None else now_ms - rule.keep_ms
            name = rule.period.name_before(start, ref)
            is_due = head is not None and oldest_ms <= head["timestamp-ms"] < start
            if head is not None and is_due and name not in base.refs:
                update.set_tag(name, head["snapshot-id"], rule.keep_ms)
                log.info("table %s: set tag %s", request.table, name)
            for tag in base.tags:
                snapshot = base.snapshots.get(base.refs[tag])
                is_expired = snapshot is not None and snapshot["timestamp-ms"] < oldest_ms
                if is_expired and rule.period.is_name(tag, ref):
                    update.remove_ref(tag)
                    log.info("table %s: removed expired tag %s", request.table, tag)
