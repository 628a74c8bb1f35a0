"""Tags of the sink: scheduled ones, and the one at the last commit."""

from __future__ import annotations

import logging
import time

from connectors.iceberg.catalog.table_update import TableUpdate
from connectors.iceberg.commit.attempt import Attempt
from connectors.iceberg.commit.rules.rule import CommitRule, RuleRun
from connectors.iceberg.protocol.commit_request import CommitRequest

log = logging.getLogger(__name__)


class ScheduledTags(CommitRule):
    """Tags the last state of each hour, day, week, or month, and removes tags that are too old."""

    def begin(self, request: CommitRequest) -> RuleRun | None:
        """Return the hooks if the request has tags."""
        return (
            _ScheduledTagsRun(request) if request.tags or request.ledger_tag is not None else None
        )


class _ScheduledTagsRun(RuleRun):
    def __init__(self, request: CommitRequest) -> None:
        self._request = request

    def amend(self, attempt: Attempt, update: TableUpdate) -> None:
        """Move the ledger tag to this commit, and tag the head before it if it is the last state of
        a period.

        A tag names what readers of the ref saw when the period ended. A table without commits since
        then gets it with the next commit. An existing tag is never moved, because another connector
        of the table may have set it. A commit that readers do not see yet changes no scheduled
        tags.
        """
        request, base = self._request, update.base()
        ledger_tag = request.ledger_tag
        if ledger_tag is not None and request.keep_ledger_tag:
            update.set_tag(ledger_tag, update.snapshot_id, None)
        elif ledger_tag in base.tags:
            update.remove_ref(str(ledger_tag))
        if attempt.target_ref == request.unpublished_branch:
            return
        table, ref = request.table, attempt.cycle.request.ref
        now_ms, head = int(time.time() * 1000), base.head(ref)
        for rule in request.tags:
            start = rule.period.start(now_ms)
            oldest_ms = None if rule.keep_ms is None else now_ms - rule.keep_ms
            name = rule.period.name_before(start, ref)
            if (
                head is not None
                and (oldest_ms or 0) <= head["timestamp-ms"] < start
                and name not in base.refs
            ):
                update.set_tag(name, head["snapshot-id"], rule.keep_ms)
                log.info("table %s: set tag %s at snapshot %d", table, name, head["snapshot-id"])
            for tag in base.tags:
                snapshot = base.snapshots.get(base.refs[tag])
                if (
                    oldest_ms
                    and snapshot
                    and snapshot["timestamp-ms"] < oldest_ms
                    and rule.period.is_name(tag, ref)
                ):
                    update.remove_ref(tag)
                    log.info(
                        "table %s: removed tag %s, which is older than its rule keeps tags",
                        table,
                        tag,
                    )
