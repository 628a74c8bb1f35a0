"""Chained futures and translated failures."""

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
    """Return the future of `then(result of first)`, or the error of `first`.

    The returned future shows the stage of the step in progress.
    """
    answer: StagedFuture[T] = StagedFuture()
    answer.wait_for(first)

    def continue_with(ended: Future[S]) -> None:
        try:
            following = then(ended.result())
            answer.wait_for(following)
        except Exception as error:  # noqa: BLE001 - passed on to the caller
            answer.set_exception(error)
        else:
            following.add_done_callback(partial(pass_on, answer))

    first.add_done_callback(continue_with)
    return answer


def mapped_error(
    result: Future[T], kind: type[Exception], make: Callable[[], Exception]
) -> Future[T]:
    """Return the result of a future, with errors of a given type replaced."""
    answer: StagedFuture[T] = StagedFuture()
    answer.wait_for(result)

    def ended(_: Future[T]) -> None:
        error = error_of(result)
        if isinstance(error, kind):
            answer.set_exception(make())
        else:
            pass_on(answer, result)

    result.add_done_callback(ended)
    return answer


def translated(started: Future[None], message: str, stage: Stage | None = None) -> Future[None]:
    """Return the result of a future, with failures wrapped in a ConnectError with a message."""
    answer: StagedFuture[None] = StagedFuture(lambda: stage)

    def done(ended: Future[None]) -> None:
        error = error_of(ended)
        if error is None:
            answer.set_result(None)
            return
        failure = ConnectError(message)
        failure.__cause__ = error
        answer.set_exception(failure)

    started.add_done_callback(done)
    return answer
