"""Requests that ran out of time, and what becomes of the operation afterwards."""

from __future__ import annotations

import asyncio
import gc
import threading
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any, cast

import pytest

from connect_py.herder.herder import Herder
from rest import deadline
from rest.errors import RestError

IDLE = cast(Herder, SimpleNamespace(stage=lambda: None))


def messages_after(timed_out: Any) -> list[str]:
    """Return asyncio's error messages if the operation fails after its request was answered."""
    messages: list[str] = []

    async def serve() -> None:
        asyncio.get_running_loop().set_exception_handler(
            lambda _, about: messages.append(about["message"])
        )
        await timed_out()
        gc.collect()

    asyncio.run(serve())
    return messages


def test_late_failure_of_an_answer_is_not_reported_as_lost() -> None:
    async def timed_out() -> None:
        future: Future[None] = Future()
        with pytest.raises(RestError, match="timed out"):
            await deadline.answer(IDLE, future, seconds=0.01)
        future.set_exception(ValueError("Worker is shutting down"))
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    assert messages_after(timed_out) == []


def test_late_failure_of_a_call_is_not_reported_as_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(deadline, "REQUEST_SECONDS", 0.01)
    may_end = threading.Event()

    def fail() -> None:
        may_end.wait(30)
        raise ValueError("no")

    async def timed_out() -> None:
        with pytest.raises(RestError, match="timed out"):
            await deadline.call(IDLE, fail)
        may_end.set()
        pending = asyncio.all_tasks() - {asyncio.current_task()}
        await asyncio.wait(pending, timeout=30)

    assert messages_after(timed_out) == []
