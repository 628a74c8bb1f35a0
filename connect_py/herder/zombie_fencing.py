"""`ZombieFencing`: sees to it that no task of an earlier set of a source writes once tasks of a new
one may."""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial

from connect_py.api.errors import ConnectError
from connect_py.futures import done, settle
from connect_py.herder.request_queue import RequestQueue
from connect_py.storage.config_state import ClusterConfigState
from connect_py.storage.config_store import ConfigStore
from connect_py.storage.leader_producer import FencedError

log = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class _Round:
    """One fencing under way; requests that come meanwhile wait with the others."""

    start_number: int  # of the task set that is to come
    waiting: list[Future[None]] = field(default_factory=list)


class ZombieFencing:
    """The leader's part of exactly-once sources, on the herder's thread.

    The config topic says how many producers the last task set that wrote had (the task count
    record), and whether a newer set has been published since. Between the steps the leader may die:

    1. the producers are fenced: the next leader fences them again
    2. the new count is recorded: tasks may start; the next leader has nothing to do
    """

    def __init__(
        self,
        configs: ConfigStore,
        queue: RequestQueue,
        fence_producers: Callable[[str, int], Future[None]],
    ) -> None:
        """Prepare. `fence_producers` takes the transactional ids of the first so many tasks of a
        connector."""
        self._configs = configs
        self._queue = queue
        self._fence_producers = fence_producers
        self._active: dict[str, _Round] = {}

    def fence(self, name: str) -> Future[None]:
        """Fence a source connector's old tasks; done when tasks of the set in force may write."""
        state = self._configs.snapshot()
        if name not in state.pending_fencing:
            log.debug("connector %s: all old tasks are fenced already", name)
            return done(None)
        before, count = state.task_count_records.get(name), state.task_counts.get(name, 0)
        if before is None or before == count == 1:
            # No producer has ever been there, or the one that may be there is fenced by its
            # successor.
            self._configs.put_task_count_record(name, count)
            return done(None)
        start_number = _start_number(state, name)
        active = self._active.get(name)
        if active is None or active.start_number != start_number:
            active = self._active[name] = _Round(start_number)
            fenced = self._fence_producers(name, before)
            fenced.add_done_callback(
                lambda ended: self._queue.put(partial(self._fenced, name, active, ended))
            )
        answer: Future[None] = Future()
        active.waiting.append(answer)
        return answer

    def _fenced(self, name: str, active: _Round, ended: Future[None]) -> None:
        if self._active.get(name) is active:
            del self._active[name]
        error = ended.exception()
        state = self._configs.snapshot()
        if error is None and _start_number(state, name) != active.start_number:
            error = ConnectError("the connector has a new set of tasks meanwhile")
        if error is None:
            try:
                self._configs.put_task_count_record(name, state.task_counts.get(name, 0))
            except FencedError as fenced:
                _tell(name, active, fenced)
                raise  # the herder leads no longer
            except ConnectError as problem:
                error = problem
        _tell(name, active, error)


def _tell(name: str, active: _Round, error: BaseException | None) -> None:
    failure = (
        None
        if error is None
        else ConnectError(f"Failed to fence the zombie tasks of connector {name}: {error}")
    )
    if failure is not None:
        failure.__cause__ = error
    settle(active.waiting, failure)


def _start_number(state: ClusterConfigState, name: str) -> int:
    return state.start_numbers.get(name, -1)
