"""`GroupRouter`: routes requests to the worker of a group that can process them."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from contextlib import ExitStack
from typing import TypeVar

from connect_py.herder.connector_configs import ConnectorConfigs, is_configured
from connect_py.herder.group.group_assignment import GroupAssignment
from connect_py.herder.group.leadership import Leadership, NotLeaderError
from connect_py.herder.group.worker_group import WorkerGroup
from connect_py.herder.herder import RequestConflictError, RequestTargetError, StagedFuture
from connect_py.herder.local_work.work_plan import RequestedItems
from connect_py.herder.requests.request_router import RequestRouter
from connect_py.herder.thread.futures import mapped_error
from connect_py.herder.thread.herder_executor import HerderExecutor
from connect_py.herder.thread.request_queue import RequestQueue
from connect_py.herder.thread.stage_board import StageBoard
from connect_py.storage.status_table import StatusId

T = TypeVar("T")

LEADER_MESSAGE = "Only the leader can process this request."
OWNER_MESSAGE = "Only the worker that runs it can process this request."
STALE_CONFIG_MESSAGE = (
    "Cannot complete request momentarily due to stale configuration (typically caused by "
    "a concurrent config change)"
)


class GroupRouter(RequestRouter):
    """Routes requests in a worker group.

    A request waits until this worker has an assignment. A long rebalance therefore delays the
    response.
    """

    def __init__(
        self,
        executor: HerderExecutor,
        queue: RequestQueue,
        stages: StageBoard,
        group: WorkerGroup,
        leadership: Leadership,
        assignment: GroupAssignment,
        requested: RequestedItems,
        connectors: ConnectorConfigs,
    ) -> None:
        self._executor = executor
        self._queue = queue
        self._stages = stages
        self._group = group
        self._leadership = leadership
        self._assignment = assignment
        self._requested = requested
        self._connectors = connectors
        # requests that wait until this worker has an assignment; used only on the herder's thread
        self._waiting: list[Callable[[], None]] = []
        # stage that is reported while this worker has no assignment
        self._rebalance_stage: ExitStack | None = None

    def ping(self) -> Future[None]:
        return self._submit(lambda: None)

    def _submit(self, action: Callable[[], T | Future[T]]) -> Future[T]:
        """Run an action on the herder's thread once this worker has an assignment."""
        response: StagedFuture[T] = StagedFuture()

        def run() -> None:
            if self._assignment.working or self._executor.stopping.is_set():
                self._executor.complete(response, action)
            else:
                self._waiting.append(run)

        self._executor.enqueue(run)
        return response

    def submit_to_leader(self, action: Callable[[], T | Future[T]]) -> Future[T]:
        """Run an action on the leader's thread, where slow writes delay only other writes."""

        def submit() -> Future[T]:
            if not self._leadership.expected:
                raise self._leader_redirect()
            return mapped_error(
                self._leadership.submit(action), NotLeaderError, self._leader_redirect
            )

        return self._submit(submit)

    def _leader_redirect(self) -> RequestTargetError:
        url = self._group.leader_url()
        return RequestTargetError(LEADER_MESSAGE, None if url == self._group.url else url)

    def submit_to_owner(self, item: StatusId, action: Callable[[], T | Future[T]]) -> Future[T]:
        """Run an action if this worker runs a connector or task.

        The action runs after a pending start, stop, or reassignment has completed. It also runs if
        the connector or task does not exist, because any worker can report that error.
        """

        def can_run() -> bool:
            return self._requested.owns(item) or not is_configured(self._connectors.state(), item)

        def settled() -> bool:
            if can_run():
                return True
            return self._group.owner_url(item) != self._group.url and not self._group.is_moving(
                item
            )

        def run() -> T | Future[T]:
            if can_run():
                return action()
            url = self._group.owner_url(item)
            if url == self._group.url:  # the item is about to start or stop
                raise RequestConflictError(STALE_CONFIG_MESSAGE)
            raise RequestTargetError(OWNER_MESSAGE, url)

        return self._submit(lambda: self._executor.submit_when(settled, run))

    def run_waiting(self) -> None:
        """Run the waiting requests if this worker has an assignment.

        Called on the herder's thread.
        """
        if not self._assignment.working:
            if self._rebalance_stage is None:
                self._rebalance_stage = ExitStack()
                self._rebalance_stage.enter_context(
                    self._stages.stage("ensuring membership in the cluster")
                )
            return
        if self._rebalance_stage is not None:
            self._rebalance_stage.close()
            self._rebalance_stage = None
        requests, self._waiting = self._waiting, []
        for run in requests:
            run()

    def fail_waiting(self) -> None:
        """Queue the waiting requests. They will fail because the worker is stopping.

        Called on the herder's thread.
        """
        for run in self._waiting:
            self._queue.put(run)
