"""Kafka Connect's request deadlines. Timeout errors name the operation in progress."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from datetime import UTC, datetime
from typing import TypeVar

from connect_py.herder.herder import Herder, Stage, StagedFuture, UnavailableError
from rest.errors import SHUTTING_DOWN, RestError

REQUEST_SECONDS = 90.0
HEALTH_SECONDS = 10.0

T = TypeVar("T")


def stage_sentence(stage: Stage | None, *, period: bool = True) -> str:
    """Return a sentence about the worker's current or last operation, or "" if there is none."""
    if stage is None:
        return ""
    start = _instant(stage.started_ms)
    end = "." if period else ""
    if stage.completed_ms is None:
        return f"The worker is currently {stage.description}, which began at {start}{end}"
    return (
        f"The last operation the worker completed was {stage.description}, "
        f"which began at {start} and completed at {_instant(stage.completed_ms)}{end}"
    )


def _instant(ms: int) -> str:
    moment = datetime.fromtimestamp(ms / 1000, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


async def answer(
    herder: Herder, future: Future[T], *, period: bool = True, seconds: float | None = None
) -> T:
    """Wait for a result from the herder. The default timeout is `REQUEST_SECONDS`.

    Raises:
        RestError: 500 after the deadline. The operation continues and may still take effect.
    """
    try:
        return await _within(asyncio.wrap_future(future), seconds or REQUEST_SECONDS)
    except TimeoutError as error:
        if future.done():
            raise  # the operation itself timed out
        stage = future.stage() if isinstance(future, StagedFuture) else None
        raise _timed_out(stage or herder.stage(), period) from error


async def state_read(herder: Herder) -> None:
    """Wait until the herder has read all connectors and statuses.

    Until then, the herder's snapshots are empty.

    Raises:
        RestError: 500 after the deadline.
    """
    await answer(herder, herder.state_read())


async def call(herder: Herder, function: Callable[[], T]) -> T:
    """Run a blocking function, such as a write to Kafka, on a thread with the same deadline."""
    try:
        return await _within(asyncio.ensure_future(asyncio.to_thread(function)), REQUEST_SECONDS)
    except TimeoutError as error:
        raise _timed_out(herder.stage(), period=True) from error


async def _within(operation: asyncio.Future[T], seconds: float) -> T:
    """Wait for `operation` for a limited time.

    After a timeout, the operation continues, but its outcome is ignored.
    """
    # without the callback, asyncio would log that the exception was never retrieved
    operation.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
    try:
        return await asyncio.wait_for(asyncio.shield(operation), seconds)
    except asyncio.CancelledError as error:
        if operation.done():
            # the worker is stopping and abandoned the operation; the request was not canceled
            raise UnavailableError(SHUTTING_DOWN) from error
        raise


def _timed_out(stage: Stage | None, period: bool) -> RestError:
    sentence = stage_sentence(stage, period=period)
    return RestError(500, f"Request timed out. {sentence}" if sentence else "Request timed out")
