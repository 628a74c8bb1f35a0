"""`StatusRepairs`: corrects statuses that another worker has overwritten or left behind."""

from __future__ import annotations

from connect_py.clock import Clock
from connect_py.herder.connector_configs import ConnectorConfigs
from connect_py.herder.group.group_assignment import GroupAssignment
from connect_py.herder.group.leadership import Leadership
from connect_py.herder.group.worker_group import WorkerGroup
from connect_py.herder.local_work.status_cleanup import StatusCleanup
from connect_py.herder.local_work.status_publisher import StatusPublisher
from connect_py.herder.local_work.work_plan import RequestedItems
from connect_py.storage.control_records import Items

REPAIR_SECONDS = 3.0


class StatusRepairs:
    """Corrects statuses periodically. Used only on the herder's thread."""

    def __init__(
        self,
        group: WorkerGroup,
        leadership: Leadership,
        assignment: GroupAssignment,
        requested: RequestedItems,
        connectors: ConnectorConfigs,
        publisher: StatusPublisher,
        cleanup: StatusCleanup,
        clock: Clock,
    ) -> None:
        self._group = group
        self._leadership = leadership
        self._assignment = assignment
        self._requested = requested
        self._connectors = connectors
        self._publisher = publisher
        self._cleanup = cleanup
        self._clock = clock
        self._repaired_at = 0.0
        # config offset, and items on other workers, at the time of the last cleanup
        self._cleaned_up: tuple[int, Items] | None = None

    def run(self) -> None:
        """Republish this worker's statuses that a slow former owner may have overwritten.

        If this worker is the leader, also remove obsolete statuses.
        """
        now = self._clock.monotonic()
        if self._assignment.working and now - self._repaired_at > REPAIR_SECONDS:
            self._repaired_at = now
            self._publisher.repair(
                item for item in self._requested.items() if self._requested.owns(item)
            )
        if self._leadership.leads:
            version = (self._connectors.state().offset, self._group.running_elsewhere())
            if version != self._cleaned_up:
                self._cleaned_up = version
                self._cleanup.clean_up()
