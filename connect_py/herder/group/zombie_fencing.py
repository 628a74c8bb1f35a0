"""`ZombieFencing`: fences the tasks in a source connector's earlier task sets.

The tasks in a new task set must not write until the earlier tasks have been fenced.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial

from connect_py.api.errors import ConnectError
from connect_py.futures import done, settle
from connect_py.herder.thread.request_queue import RequestQueue
from connect_py.storage.config_state import ClusterConfigState
from connect_py.storage.config_store import ConfigStore
from connect_py.storage.leader_producer import FencedError

log = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class _Round:
    """A round of fencing in progress, with the requests that wait for it."""

    start_number: int  # config topic offset of the change that started the new task set
    waiting: list[Future[None]] = field(default_factory=list)


class ZombieFencing:
    """Fences the zombie tasks of exactly-once source connectors. Used only on the leader's thread.

    The task count record in the config topic contains the size of the last task set whose producers
    may have written. The config topic also shows whether a newer task set has been published since
    then. The effect of a leader crash depends on the last completed step:

    1. The producers have been fenced. The next leader fences them again.
    2. The new task count record has been written. Tasks may start without further fencing.
    """

    def __init__(
        self,
        configs: ConfigStore,
        queue: RequestQueue,
        fence_producers: Callable[[str, int], Future[None]],
    ) -> None:
        """Create the component.

        `fence_producers` takes a connector name and a number N, and fences the transactional IDs of
        the connector's first N tasks.
        """
        self._configs = configs
        self._queue = queue
        self._fence_producers = fence_producers
        self._active: dict[str, _Round] = {}

    def fence(self, name: str) -> Future[None]:
        """Fence a source connector's old tasks.

        The future completes when the tasks in the current task set may write.
        """
        state = self._configs.snapshot()
        if name not in state.pending_fencing:
            log.debug("connector %s: all old tasks are already fenced", name)
            return done(None)
        before, count = state.task_count_records.get(name), state.task_counts.get(name, 0)
        if before is None or before == count == 1:
            # There was no producer, or only one, which the new task's producer fences itself.
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
        response: Future[None] = Future()
        active.waiting.append(response)
        return response

    def _fenced(self, name: str, active: _Round, ended: Future[None]) -> None:
        if self._active.get(name) is active:
            del self._active[name]
        error = ended.exception()
        state = self._configs.snapshot()
        if error is None and _start_number(state, name) != active.start_number:
            error = ConnectError("the connector has a new set of tasks")
        if error is None:
            try:
                self._configs.put_task_count_record(name, state.task_counts.get(name, 0))
            except FencedError as fenced:
                _complete(name, active, fenced)
                raise  # ends the leader's term
            except ConnectError as problem:
                error = problem
        _complete(name, active, error)


def _complete(name: str, active: _Round, error: BaseException | None) -> None:
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
