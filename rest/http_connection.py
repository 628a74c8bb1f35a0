"""One connection of a client: uvicorn's, with Jetty's answer to a request whose head is too large."""

from __future__ import annotations

import sys

import h11
from uvicorn.protocols.http.h11_impl import STATUS_PHRASES, H11Protocol

from rest.errors import HEAD_TOO_LARGE, TARGET_TOO_LONG, error_body


class HttpConnection(H11Protocol):
    """Answers in Connect's form where uvicorn would say "Invalid HTTP request received." only."""

    def send_400_response(self, msg: str) -> None:
        """Refuse what is no request; called while the parser's error is handled."""
        error = sys.exception()
        status, message = 400, "HTTP 400 Bad Request"
        if isinstance(error, h11.RemoteProtocolError) and error.error_status_hint == 431:
            ended = b"\n" in self.conn.trailing_data[0]  # the first line: the target
            status, message = (431, HEAD_TOO_LARGE) if ended else (414, TARGET_TOO_LONG)
        body = error_body(status, message)
        headers = [
            (b"content-type", b"application/json"), (b"content-length", str(len(body)).encode()),
            (b"connection", b"close"),
        ]  # fmt: skip
        reason = STATUS_PHRASES[status]
        events = (h11.Response(status_code=status, headers=headers, reason=reason), h11.Data(data=body))
        for event in (*events, h11.EndOfMessage()):
            self.transport.write(self.conn.send(event) or b"")
        self.transport.close()
