"""Stages in the errors of requests that time out."""

from __future__ import annotations

from concurrent.futures import CancelledError, Future
from functools import partial

import pytest

from connect_py.api.errors import ConnectError
from connect_py.clock import SystemClock
from connect_py.futures import done, pass_on
from connect_py.herder.herder import Stage, StagedFuture
from connect_py.herder.thread.futures import chain, mapped_error, translated
from connect_py.herder.thread.stage_board import StageBoard

VALIDATING, STARTING = Stage("validating", 1), Stage("starting the connector", 2)


def test_chain_shows_the_stage_of_the_current_step() -> None:
    first: StagedFuture[int] = StagedFuture(lambda: VALIDATING)
    second: StagedFuture[str] = StagedFuture(lambda: STARTING)
    answer = chain(first, lambda _: mapped_error(second, ConnectError, ConnectError))
    assert isinstance(answer, StagedFuture)
    assert answer.stage() == VALIDATING
    first.set_result(1)
    assert answer.stage() == STARTING
    second.set_result("done")
    assert answer.result(0) == "done"


def test_future_without_its_own_stage_reports_no_stage() -> None:
    plain: Future[int] = Future()
    answer = chain(plain, lambda _: plain)
    assert isinstance(answer, StagedFuture)
    assert answer.stage() is None


def test_translated_future_shows_the_stage_of_its_argument() -> None:
    started: Future[None] = Future()
    answer = translated(started, "Failed to start connector: a", STARTING)
    assert isinstance(answer, StagedFuture)
    assert answer.stage() == STARTING
    started.set_exception(ValueError("no such file"))
    with pytest.raises(ConnectError, match="Failed to start connector: a"):
        answer.result(0)


def test_stages_of_two_threads_may_overlap() -> None:
    board = StageBoard(SystemClock())
    assert board.current() is None
    first, second = board.stage("first"), board.stage("second")
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)  # the outer stage ends before the inner stage
    current = board.current()
    assert current is not None
    assert (current.description, current.completed_ms) == ("second", None)
    second.__exit__(None, None, None)
    last = board.current()
    assert last is not None
    assert last.description == "second"
    assert last.completed_ms is not None


def test_cancelled_part_at_worker_stop_ends_all_waiting_futures() -> None:
    part: Future[None] = Future()
    answer: Future[None] = Future()
    part.add_done_callback(partial(pass_on, answer))
    waiting = [
        answer,
        mapped_error(part, ConnectError, ConnectError),
        chain(part, lambda _: part),
        chain(done(None), lambda _: part),
    ]
    translated_future = translated(part, "Failed to start connector: a")
    part.cancel()
    part.set_running_or_notify_cancel()
    assert [type(future.exception(0)) for future in waiting] == [CancelledError] * 4
    assert isinstance(translated_future.exception(0), ConnectError)
