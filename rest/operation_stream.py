"""Response to a request that calls an operation with progress reports.

If the operation takes longer than a second, the response consists of JSON lines. A line such as
`{"progress": "comparing the snapshots"}` reports the current step once per second. The last line is
`{"result": ...}` or Kafka Connect's error entity. If the operation ends within the first second,
the response is not streamed.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any, Final

from fastapi import Response
from starlette.types import Receive, Scope, Send

from connect_py.api.errors import ConfigError
from connect_py.herder.herder import RunningOperation
from rest import entities
from rest.errors import RestError, error_body, status_and_message

MEDIA_TYPE: Final = "application/x-ndjson"
PROGRESS_SECONDS: Final = 1.0
_CHUNK: Final = 64 * 1024  # bytes

log = logging.getLogger(__name__)


async def response(running: RunningOperation) -> Response:
    """Return the response to an operation, streamed if it takes longer than a second.

    Raises:
        RestError: The operation failed within the first second.
    """
    outcome = asyncio.wrap_future(running.result)
    await asyncio.wait([outcome], timeout=PROGRESS_SECONDS)
    if not outcome.done():
        return _OperationStream(running, outcome)
    try:
        value = outcome.result()
    except ConfigError as error:
        raise RestError(400, str(error)) from error
    return Response(
        await asyncio.to_thread(entities.json_bytes, value), media_type="application/json"
    )


class _OperationStream(Response):
    """Streams lines until the operation ends, and cancels it if the client disconnects."""

    media_type = MEDIA_TYPE

    def __init__(self, running: RunningOperation, outcome: asyncio.Future[Any]) -> None:
        super().__init__()
        del self.headers["content-length"]
        self._running = running
        self._outcome = outcome

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send(
            {"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers}
        )
        disconnect = asyncio.ensure_future(_disconnected(receive))
        try:
            while not self._outcome.done() and not disconnect.done():
                await _send_line(send, entities.json_bytes({"progress": self._running.step}))
                await asyncio.wait(
                    [self._outcome, disconnect],
                    timeout=PROGRESS_SECONDS,
                    return_when=asyncio.FIRST_COMPLETED,
                )
            if self._outcome.done():
                await _send_line(send, await asyncio.to_thread(self._last_line))
                await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            disconnect.cancel()
            if not self._outcome.done():
                log.info("canceling an operation because its client disconnected")
                self._outcome.add_done_callback(
                    lambda outcome: outcome.cancelled() or outcome.exception()
                )
                self._running.cancel()

    def _last_line(self) -> bytes:
        try:
            return entities.json_bytes({"result": self._outcome.result()})
        except ConfigError as error:
            return error_body(400, str(error))
        except Exception as error:
            status, message = status_and_message(error)
            if status >= 500:
                log.error("an operation failed: %s", message, exc_info=error)
            return error_body(status, message)


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _send_line(send: Send, line: bytes) -> None:
    line += b"\n"
    for start in range(0, len(line), _CHUNK):
        await send(
            {"type": "http.response.body", "body": line[start : start + _CHUNK], "more_body": True}
        )
