"""Helper functions that chain futures and translate their errors."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import TypeVar

from connect_py.api.errors import ConnectError
from connect_py.futures import error_of, pass_on
from connect_py.herder.herder import Stage, StagedFuture

S = TypeVar("S")
T = TypeVar("T")


def chain(first: Future[S], then: Callable[[S], Future[T]]) -> Future[T]:
    """Return a future for the result of `then`, which is called with the result of `first`.

    If `first` fails, the returned future fails with its error. The returned future reports the
    stage of the step in progress.
    """
    outcome: StagedFuture[T] = StagedFuture()
    outcome.wait_for(first)

    def continue_with(ended: Future[S]) -> None:
        try:
            following = then(ended.result())
            outcome.wait_for(following)
        except Exception as error:  # noqa: BLE001 - set on the caller's future
            outcome.set_exception(error)
        else:
            following.add_done_callback(partial(pass_on, outcome))

    first.add_done_callback(continue_with)
    return outcome


def mapped_error(
    result: Future[T], kind: type[Exception], make: Callable[[], Exception]
) -> Future[T]:
    """Return a future with the same result, but replace an error of type `kind`."""
    outcome: StagedFuture[T] = StagedFuture()
    outcome.wait_for(result)

    def ended(_: Future[T]) -> None:
        error = error_of(result)
        if isinstance(error, kind):
            outcome.set_exception(make())
        else:
            pass_on(outcome, result)

    result.add_done_callback(ended)
    return outcome


def translated(started: Future[None], message: str, stage: Stage | None = None) -> Future[None]:
    """Return a future with the same result. An error is wrapped in a ConnectError with `message`.

    The future reports `stage` until it completes.
    """
    outcome: StagedFuture[None] = StagedFuture(lambda: stage)

    def done(ended: Future[None]) -> None:
        error = error_of(ended)
        if error is None:
            outcome.set_result(None)
            return
        failure = ConnectError(message)
        failure.__cause__ = error
        outcome.set_exception(failure)

    started.add_done_callback(done)
    return outcome
