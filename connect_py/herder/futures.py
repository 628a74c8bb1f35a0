"""What the herder does with futures: chains, translated failures, and those that are done already."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import CancelledError, Future
from functools import partial
from typing import TypeVar

from connect_py.api.errors import ConnectError
from connect_py.herder.herder import Stage, StagedFuture

S = TypeVar("S")
T = TypeVar("T")


def pass_on(answer: Future[T], result: Future[T]) -> None:
    """Give the outcome of `result`, which is done, to who waits for `answer`."""
    error = _error(result)
    if error is None:
        answer.set_result(result.result())
    else:
        answer.set_exception(error)


def _error(ended: Future[T]) -> BaseException | None:
    """Why a future failed; one that was given up, as the worker stops, would raise instead of telling."""
    return CancelledError() if ended.cancelled() else ended.exception()


def done(value: T) -> Future[T]:
    future: Future[T] = Future()
    future.set_result(value)
    return future


def failed(error: BaseException) -> Future[None]:
    future: Future[None] = Future()
    future.set_exception(error)
    return future


def chain(first: Future[S], then: Callable[[S], Future[T]]) -> Future[T]:
    """The future of what follows `first`; its error if it fails. Its stage is that of the part under way."""
    answer: StagedFuture[T] = StagedFuture()
    answer.part = first

    def go_on(ended: Future[S]) -> None:
        try:
            answer.part = following = then(ended.result())
        except Exception as error:  # noqa: BLE001 - the caller that waits gets it
            answer.set_exception(error)
        else:
            following.add_done_callback(partial(pass_on, answer))

    first.add_done_callback(go_on)
    return answer


def mapped_error(result: Future[T], kind: type[Exception], make: Callable[[], Exception]) -> Future[T]:
    """The same, an error of this kind replaced."""
    answer: StagedFuture[T] = StagedFuture()
    answer.part = result

    def ended(_: Future[T]) -> None:
        error = _error(result)
        if isinstance(error, kind):
            answer.set_exception(make())
        else:
            pass_on(answer, result)

    result.add_done_callback(ended)
    return answer


def translated(started: Future[None], text: str, stage: Stage | None = None) -> Future[None]:
    """The same, a failure under Connect's text."""
    answer: StagedFuture[None] = StagedFuture(lambda: stage)

    def done(ended: Future[None]) -> None:
        error = _error(ended)
        if error is None:
            answer.set_result(None)
            return
        failure = ConnectError(text)
        failure.__cause__ = error
        answer.set_exception(failure)

    started.add_done_callback(done)
    return answer
