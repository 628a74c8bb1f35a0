"""`Notices`: what a person may want to know, as JSON to a webhook, to a topic, or to both."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from enum import Enum
from typing import Any

from connectors.iceberg.coordinator.background_sender import BackgroundSender

_TIMEOUT_SECONDS = 10.0
_JSON = {"Content-Type": "application/json"}


class NoticeKind(Enum):
    """What happened."""

    SCHEMA_CHANGED = "schema-changed"  # the sink changed a table's schema
    SCHEMA_CHANGE_PENDING = "schema-change-pending"  # rows wait until a user changes a table
    SCHEMA_CHANGE_DONE = "schema-change-done"
    WAITING = "waiting"  # rows wait for something that does not work
    WORKING = "working"  # it works again
    NOT_AS_EXPECTED = "not-as-expected"  # rows of a commit do not meet an expectation
    UNPUBLISHED = "unpublished"  # readers do not see the last commits
    PUBLISHED = "published"  # or do again
    STALE = "stale"  # a table is older than it may be
    FRESH = "fresh"  # it is no more
    STOPPING = "stopping"  # all tables have all rows before `iceberg.ext.stop-at`


class Notices:
    """Owns a thread for each place that notices go to. Any thread; nothing here waits or fails."""

    def __init__(
        self,
        connector: str,
        sends: Sequence[Callable[[bytes], None]],
        outcome: Callable[[str], None],
    ) -> None:
        """`sends`: each sends a notice to one place, or raises."""
        self._connector = connector
        self._senders = [BackgroundSender("notices", send, outcome) for send in sends]

    def tell(self, kind: NoticeKind, table: str, text: str, **details: Any) -> None:
        """Something happened to a table; an empty name: to all."""
        document = {
            "id": str(uuid.uuid4()),
            "at": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "connector": self._connector,
            "kind": kind.value,
            "table": table or None,
            "text": text,
            **details,
        }
        notice = json.dumps(document, separators=(",", ":")).encode()
        for sender in self._senders:
            sender.put(notice)

    def close(self, seconds: float) -> None:
        """Send what waits, for so long at most."""
        for sender in self._senders:
            sender.close(seconds)


def to_webhook(url: str) -> Callable[[bytes], None]:
    """Send by POST; every status below 300 is fine."""
    import httpx

    def send(notice: bytes) -> None:
        answer = httpx.post(url, content=notice, headers=_JSON, timeout=_TIMEOUT_SECONDS)
        answer.raise_for_status()

    return send
