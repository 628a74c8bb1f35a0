"""One connection of a client: uvicorn's, with time-outs, and with Jetty's answer to a head that is
too large."""

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
    """How many connections clients may hold, and how long one may keep the server waiting."""

    connections: int = 1000
    # from its first byte, or from the connection, to the end of a request's head
    head_seconds: float = 30.0
    idle_seconds: float = 30.0  # between two requests, and between two pieces of a body


class OpenConnections:
    """The connections of all listeners. When there are too many, the one that has waited longest
    makes room.

    Everything happens on the event loop's thread.
    """

    def __init__(self, limits: ConnectionLimits) -> None:
        self.limits = limits
        self._open: set[HttpConnection] = set()
        self._waiting: dict[
            HttpConnection, None
        ] = {}  # for a request; who waits longest comes first
        self._closed = 0
        self._logged: float | None = None  # by the event loop's clock

    def enter(self, connection: HttpConnection, now: float) -> bool:
        """Take a new connection in; False: all others are at work, and it must go."""
        full = len(self._open) >= self.limits.connections
        if full:
            self._tell(now)
            oldest = next(iter(self._waiting), None)
            if oldest is None:
                return False
            self.leave(oldest)
            oldest.give_up()
        self._open.add(connection)
        self._waiting[connection] = None
        return True

    def works(self, connection: HttpConnection) -> None:
        """A request has come."""
        self._waiting.pop(connection, None)

    def waits(self, connection: HttpConnection) -> None:
        """A request was answered."""
        if connection in self._open:
            self._waiting[connection] = None

    def leave(self, connection: HttpConnection) -> None:
        """Forget a connection."""
        self._open.discard(connection)
        self._waiting.pop(connection, None)

    def _tell(self, now: float) -> None:
        self._closed += 1
        if self._logged is None or now - self._logged >= LOG_SECONDS:
            log.warning(
                "clients hold %d connections, the limit; %d were closed to make room",
                self.limits.connections,
                self._closed,
                extra={"action": "connections_closed"},
            )
            self._logged, self._closed = now, 0


class HttpConnection(H11Protocol):
    """Ends a client that keeps the server waiting; answers what is no request in Connect's form."""

    def __init__(self, *args: Any, others: OpenConnections, **named: Any) -> None:
        """Takes what uvicorn gives its own protocol, and all connections that there are."""
        super().__init__(*args, **named)
        self._others = others
        self._limits = others.limits
        self._deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        super().connection_made(transport)
        if self._others.enter(self, self.loop.time()):
            self._end_in(self._limits.head_seconds)
        else:
            transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._others.leave(self)
        self._end_in(None)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.transport.is_closing():
            return
        # a part of a head: what trickles gets no more time
        if self.cycle is None or self.cycle.response_complete:
            if self._deadline is None:
                self._end_in(self._limits.head_seconds)
            return
        self._others.works(self)
        self._end_in(self._limits.idle_seconds if self.cycle.more_body else None)

    def on_response_complete(self) -> None:
        self._end_in(None)
        self._others.waits(self)
        super().on_response_complete()

    def give_up(self) -> None:
        """End the connection at once."""
        self._end_in(None)
        self.transport.abort()

    def _end_in(self, seconds: float | None) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline = None if seconds is None else self.loop.call_later(seconds, self.give_up)

    def send_400_response(self, msg: str) -> None:
        """Refuse what is no request; called while the parser's error is handled."""
        error = sys.exception()
        status, message = 400, "HTTP 400 Bad Request"
        if isinstance(error, h11.RemoteProtocolError) and error.error_status_hint == 431:
            ended = b"\n" in self.conn.trailing_data[0]  # the first line: the target
            status, message = (431, HEAD_TOO_LARGE) if ended else (414, TARGET_TOO_LONG)
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
    """Lets a line that begins with one of some texts through once a minute, whatever clients do."""

    def __init__(self, *texts: str) -> None:
        super().__init__()
        self._logged: dict[str, float] = dict.fromkeys(texts, 0.0)

    def filter(self, record: logging.LogRecord) -> bool:
        line = record.getMessage()
        text = next((text for text in self._logged if line.startswith(text)), None)
        if text is None:
            return True
        if record.created - self._logged[text] < LOG_SECONDS:
            return False
        self._logged[text] = record.created
        return True
