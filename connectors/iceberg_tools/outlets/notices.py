"""`Notices`: messages for operators in JSON, to a webhook, a topic, or both."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from enum import Enum
from typing import Any

from connectors.iceberg_tools.outlets.background_sender import BackgroundSender

_TIMEOUT_SECONDS = 10.0
_JSON = {"Content-Type": "application/json"}


class NoticeKind(Enum):
    """Kind of event."""

    SCHEMA_CHANGED = "schema-changed"  # the sink changed the schema of a table
    SCHEMA_CHANGE_PENDING = "schema-change-pending"  # rows wait until a user changes a table
    SCHEMA_CHANGE_DONE = "schema-change-done"
    WAITING = "waiting"  # rows wait because of a failure
    WORKING = "working"  # the failure is over
    NOT_AS_EXPECTED = "not-as-expected"  # rows of a commit violate an expectation
    UNPUBLISHED = "unpublished"  # commits await approval
    PUBLISHED = "published"  # no commits await approval
    STALE = "stale"  # a table exceeds the maximum lag
    FRESH = "fresh"  # the lag is within the limit again
    STOPPING = "stopping"  # all tables have all rows before `iceberg.ext.stop-at`


class Notices:
    """Sender of notices. Owns a thread per destination. Any thread; never waits or raises."""

    def __init__(
        self,
        connector: str,
        sends: Sequence[Callable[[bytes], None]],
        outcome: Callable[[str], None],
    ) -> None:
        """Start the threads. Each function in `sends` sends a notice to one destination."""
        self._connector = connector
        self._senders = [BackgroundSender("notices", send, outcome) for send in sends]

    def tell(self, kind: NoticeKind, table: str, text: str, **details: Any) -> None:
        """Send a notice about a table. An empty name means all tables."""
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
        """Send the waiting notices within this time, and end the threads."""
        for sender in self._senders:
            sender.close(seconds)


def to_webhook(url: str) -> Callable[[bytes], None]:
    """Return a function that sends a notice by POST, and raises for a status of 300 or more."""
    import httpx  # here: most connectors send no notices

    def send(notice: bytes) -> None:
        response = httpx.post(url, content=notice, headers=_JSON, timeout=_TIMEOUT_SECONDS)
        response.raise_for_status()

    return send
