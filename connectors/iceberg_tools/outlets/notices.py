"""`Notices`: sends JSON messages for operators to a webhook, a topic, or both."""

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
    """Kind of event that a notice reports."""

    SCHEMA_CHANGED = "schema-changed"  # the sink changed the schema of a table
    SCHEMA_CHANGE_PENDING = "schema-change-pending"  # rows are waiting until a user changes a table
    SCHEMA_CHANGE_DONE = "schema-change-done"
    WAITING = "waiting"  # rows are waiting because of a failure
    WORKING = "working"  # the failure has been resolved
    NOT_AS_EXPECTED = "not-as-expected"  # rows in a commit violate an expectation
    UNPUBLISHED = "unpublished"  # commits await approval
    PUBLISHED = "published"  # no commits await approval
    STALE = "stale"  # a table exceeds the maximum lag
    FRESH = "fresh"  # the lag is within the limit again
    STOPPING = "stopping"  # all rows before `iceberg.ext.stop-at` are committed


class Notices:
    """Sends notices on one thread per destination.

    `tell` is thread-safe, and it never blocks or raises.
    """

    def __init__(
        self,
        connector: str,
        sends: Sequence[Callable[[bytes], None]],
        outcome: Callable[[str], None],
    ) -> None:
        """Start the threads. Each function in `sends` delivers a notice to one destination."""
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
        """Send the queued notices and stop the threads. Wait at most `seconds` for each thread."""
        for sender in self._senders:
            sender.close(seconds)


def to_webhook(url: str) -> Callable[[bytes], None]:
    """Return a function that posts a notice to a URL. It raises if the status is 300 or higher."""
    import httpx  # imported here because most connectors send no notices

    def send(notice: bytes) -> None:
        response = httpx.post(url, content=notice, headers=_JSON, timeout=_TIMEOUT_SECONDS)
        response.raise_for_status()

    return send
