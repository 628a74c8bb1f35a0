"""What the herder does with futures: chains and translated failures."""

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
    """The future of what follows `first`; its error if it fails. Its stage is that of the part
    under way."""
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


def mapped_error(
    result: Future[T], kind: type[Exception], make: Callable[[], Exception]
) -> Future[T]:
    """The same, an error of this kind replaced."""
    answer: StagedFuture[T] = StagedFuture()
    answer.part = result

    def ended(_: Future[T]) -> None:
        error = error_of(result)
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
        error = error_of(ended)
        if error is None:
            answer.set_result(None)
            return
        failure = ConnectError(text)
        failure.__cause__ = error
        answer.set_exception(failure)

    started.add_done_callback(done)
    return answer
