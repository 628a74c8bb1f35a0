"""`HttpConnection`: uvicorn's HTTP connection with timeouts and Jetty's error responses."""

from __future__ import annotations

import asyncio
import logging
import sys
from dataclasses import dataclass
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import STATUS_PHRASES, H11Protocol

from rest.errors import HEAD_TOO_LARGE, TARGET_TOO_LONG, error_body

LOG_SECONDS = 60.0

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """Maximum number of connections, and timeouts for each connection."""

    connections: int = 1000
    # time from a request's first byte (or the start of the connection) to the end of its header
    head_seconds: float = 30.0
    idle_seconds: float = 30.0  # time between requests, or between parts of a body


class OpenConnections:
    """Tracks the connections of all listeners.

    At the limit, the connection that has been idle the longest is closed. All methods must be
    called on the event loop's thread.
    """

    def __init__(self, limits: ConnectionLimits) -> None:
        self.limits = limits
        self._open: set[HttpConnection] = set()
        self._idle: dict[HttpConnection, None] = {}  # ordered by idle time, longest first
        self._closed = 0
        self._logged: float | None = None  # time of the last warning, on the event loop's clock

    def enter(self, connection: HttpConnection, now: float) -> bool:
        """Add a connection; return False if the limit is reached and no connection is idle."""
        full = len(self._open) >= self.limits.connections
        if full:
            self._log_closed(now)
            oldest = next(iter(self._idle), None)
            if oldest is None:
                return False
            self.leave(oldest)
            oldest.abort()
        self._open.add(connection)
        self._idle[connection] = None
        return True

    def mark_active(self, connection: HttpConnection) -> None:
        """Record that a request has arrived."""
        self._idle.pop(connection, None)

    def mark_idle(self, connection: HttpConnection) -> None:
        """Record that a response is complete."""
        if connection in self._open:
            self._idle[connection] = None

    def leave(self, connection: HttpConnection) -> None:
        """Remove a connection."""
        self._open.discard(connection)
        self._idle.pop(connection, None)

    def _log_closed(self, now: float) -> None:
        self._closed += 1
        if self._logged is None or now - self._logged >= LOG_SECONDS:
            log.warning(
                "client connections reached the limit of %d; closed since the last warning: %d",
                self.limits.connections,
                self._closed,
                extra={"action": "connections_closed"},
            )
            self._logged, self._closed = now, 0


class HttpConnection(H11Protocol):
    """Connection that is closed after a timeout.

    It responds to malformed requests with Kafka Connect's error entity.
    """

    def __init__(self, *args: Any, connections: OpenConnections, **options: Any) -> None:
        """Create a connection. `args` and `options` are passed to uvicorn's protocol class."""
        super().__init__(*args, **options)
        self._connections = connections
        self._limits = connections.limits
        self._deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as in uvicorn
        super().connection_made(transport)
        if self._connections.enter(self, self.loop.time()):
            self._abort_after(self._limits.head_seconds)
        else:
            transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._connections.leave(self)
        self._abort_after(None)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.transport.is_closing():
            return
        # the header is incomplete; the deadline is not extended for slow clients
        if self.cycle is None or self.cycle.response_complete:
            if self._deadline is None:
                self._abort_after(self._limits.head_seconds)
            return
        self._connections.mark_active(self)
        self._abort_after(self._limits.idle_seconds if self.cycle.more_body else None)

    def on_response_complete(self) -> None:
        self._abort_after(None)
        self._connections.mark_idle(self)
        super().on_response_complete()

    def abort(self) -> None:
        """Close the connection immediately."""
        self._abort_after(None)
        self.transport.abort()

    def _abort_after(self, seconds: float | None) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline = None if seconds is None else self.loop.call_later(seconds, self.abort)

    def send_400_response(self, msg: str) -> None:
        """Respond to a malformed request. Called while the parser's error is being handled."""
        error = sys.exception()
        status, message = 400, "HTTP 400 Bad Request"
        if isinstance(error, h11.RemoteProtocolError) and error.error_status_hint == 431:
            target_complete = b"\n" in self.conn.trailing_data[0]  # the first line is complete
            status, message = (431, HEAD_TOO_LARGE) if target_complete else (414, TARGET_TOO_LONG)
        body = error_body(status, message)
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", str(len(body)).encode()),
            (b"connection", b"close"),
        ]
        reason = STATUS_PHRASES[status]
        events = (
            h11.Response(status_code=status, headers=headers, reason=reason),
            h11.Data(data=body),
        )
        for event in (*events, h11.EndOfMessage()):
            self.transport.write(self.conn.send(event) or b"")
        self.transport.close()


class OncePerMinute(logging.Filter):
    """Limits log messages with certain prefixes to one per minute."""

    def __init__(self, *prefixes: str) -> None:
        super().__init__()
        self._logged: dict[str, float] = dict.fromkeys(prefixes, 0.0)

    def filter(self, record: logging.LogRecord) -> bool:
        message = record.getMessage()
        prefix = next((each for each in self._logged if message.startswith(each)), None)
        if prefix is None:
            return True
        if record.created - self._logged[prefix] < LOG_SECONDS:
            return False
        self._logged[prefix] = record.created
        return True
