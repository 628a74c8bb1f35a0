"""Functions that create completed futures and forward results between futures."""

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
    """Complete all futures, with the error if there is one."""
    for future in futures:
        if error is None:
            future.set_result(None)
        else:
            future.set_exception(error)


def error_of(ended: Future[Any]) -> BaseException | None:
    """Return the error of a completed future, or None if it succeeded.

    The error is CancelledError if the future was cancelled because the worker is stopping.
    """
    return CancelledError() if ended.cancelled() else ended.exception()


def pass_on(answer: Future[T], result: Future[T]) -> None:
    """Copy the result or the error of the completed future `result` to `answer`."""
    error = error_of(result)
    if error is None:
        answer.set_result(result.result())
    else:
        answer.set_exception(error)


def mapped(future: Future[S], change: Callable[[S], T]) -> Future[T]:
    """Return a future with the transformed result of another future."""
    outcome: Future[T] = Future()
    outcome.set_running_or_notify_cancel()

    def ended(answer: Future[S]) -> None:
        try:
            outcome.set_result(change(answer.result()))
        except Exception as error:  # noqa: BLE001 - passed to the caller that waits
            outcome.set_exception(error)

    future.add_done_callback(ended)
    return outcome
