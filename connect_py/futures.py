"""Futures whose outcome is known already, and outcomes that are passed on."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import CancelledError, Future
from typing import Any, TypeVar

S = TypeVar("S")
T = TypeVar("T")


def done(value: T) -> Future[T]:
    future: Future[T] = Future()
    future.set_result(value)
    return future


def failed(error: BaseException) -> Future[Any]:
    future: Future[Any] = Future()
    future.set_exception(error)
    return future


def settle(futures: Iterable[Future[None]], error: BaseException | None) -> None:
    """End all of these: well without an error."""
    for future in futures:
        if error is None:
            future.set_result(None)
        else:
            future.set_exception(error)


def error_of(ended: Future[Any]) -> BaseException | None:
    """Why a future failed; one that was given up, as the worker stops, would raise instead of
    telling."""
    return CancelledError() if ended.cancelled() else ended.exception()


def pass_on(answer: Future[T], result: Future[T]) -> None:
    """Give the outcome of `result`, which is done, to who waits for `answer`."""
    error = error_of(result)
    if error is None:
        answer.set_result(result.result())
    else:
        answer.set_exception(error)


def mapped(future: Future[S], change: Callable[[S], T]) -> Future[T]:
    """A future with the changed result of another."""
    outcome: Future[T] = Future()
    outcome.set_running_or_notify_cancel()

    def ended(answer: Future[S]) -> None:
        try:
            outcome.set_result(change(answer.result()))
        except Exception as error:  # noqa: BLE001 - the caller that waits gets it
            outcome.set_exception(error)

    future.add_done_callback(ended)
    return outcome
