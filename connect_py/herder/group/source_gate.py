"""`SourceGate`: permits source tasks to write in transactions."""

from __future__ import annotations

from concurrent.futures import Future

from connect_py.herder.group.leader_requests import LeaderRequests
from connect_py.herder.local_work.work_plan import RequestedItems
from connect_py.herder.thread.herder_executor import HerderExecutor
from connect_py.model import ConnectorTaskId
from connect_py.storage.config_store import ConfigStore
from connect_py.task.messages import TaskNotWantedError
from connect_py.worker.source_task_session import SourceTaskGate

READ_SECONDS = 30.0


class SourceGate(SourceTaskGate):
    """Implements `SourceTaskGate`. Methods are called on the worker's threads and may block."""

    def __init__(
        self,
        leader: LeaderRequests,
        store: ConfigStore,
        executor: HerderExecutor,
        requested: RequestedItems,
    ) -> None:
        self._leader = leader
        self._store = store
        self._executor = executor
        self._requested = requested

    def fence_zombie_source_tasks(self, name: str) -> Future[None]:
        return self._leader.fence_zombies(name)

    def verify_source_task(self, id: ConnectorTaskId, start_number: int) -> Future[None]:  # noqa: A002 - named as in Kafka Connect
        def verify() -> None:
            if self._store.snapshot().start_numbers.get(id.connector, 0) != start_number:
                raise TaskNotWantedError(
                    f"task {id} must not write because its connector has a new set of tasks"
                )
            if not self._requested.owns(id):
                raise TaskNotWantedError(
                    f"task {id} must not write because it was reassigned to another worker"
                )

        self._store.refresh(READ_SECONDS)
        return self._executor.submit(verify)
