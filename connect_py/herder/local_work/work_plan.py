"""Determines which connectors and tasks a worker must start and stop to match the config topic."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import TypeAlias

from connect_py.model import ConnectorTaskId, TargetState
from connect_py.storage.config_state import ClusterConfigState
from connect_py.storage.control_records import Item, Items


@dataclass(slots=True)
class RequestedWork:
    """The parts of one connector (its instance and tasks) that the herder has started."""

    # config topic offset of the configuration with which the connector was started, or -1 if it was
    # not started
    config_offset: int = -1
    target: TargetState = TargetState.STARTED
    # start number of the task set to which each task belongs (see `task_set.is_current`)
    tasks: dict[ConnectorTaskId, int] = field(default_factory=dict)
    # tasks that are being stopped and may still be running
    stopping: set[ConnectorTaskId] = field(default_factory=set)
    leaving: bool = False  # True if the connector is being stopped permanently

    @property
    def empty(self) -> bool:
        return self.config_offset < 0 and not self.tasks


class RequestedItems:
    """Tracks the connectors and tasks that the herder has started on the worker, until they stop.

    Used only on the herder's thread.
    """

    def __init__(self) -> None:
        self._work: dict[str, RequestedWork] = {}

    def by_connector(self) -> Mapping[str, RequestedWork]:
        """Return the requested work by connector name."""
        return self._work

    def of(self, name: str) -> RequestedWork:
        """Return the requested work for a connector. Create it if necessary."""
        return self._work.setdefault(name, RequestedWork())

    def remove_if_empty(self, name: str) -> None:
        """Remove the entry for a connector if the connector and all of its tasks have stopped."""
        if self._work[name].empty:
            del self._work[name]

    def tasks(self, name: str) -> list[ConnectorTaskId]:
        """Return the tasks of a connector, sorted."""
        return sorted(self._work[name].tasks) if name in self._work else []

    def items(self) -> Items:
        """Return all connectors and tasks."""
        connectors = [name for name, work in self._work.items() if work.config_offset >= 0]
        return frozenset(
            (*connectors, *(task for work in self._work.values() for task in work.tasks))
        )

    def owns(self, item: Item) -> bool:
        """Return True if a connector or task runs on this worker and is not being stopped."""
        work = self._work.get(item.connector if isinstance(item, ConnectorTaskId) else item)
        if work is None:
            return False
        if isinstance(item, ConnectorTaskId):
            return item in work.tasks and item not in work.stopping
        return work.config_offset >= 0 and not work.leaving


@dataclass(frozen=True, slots=True)
class StartConnector:
    """Starts a connector, or restarts it with a new configuration."""

    name: str


@dataclass(frozen=True, slots=True)
class SetTarget:
    """Applies a new target state to a connector and its tasks."""

    name: str
    target: TargetState


@dataclass(frozen=True, slots=True)
class StartTasks:
    name: str
    tasks: tuple[ConnectorTaskId, ...]


@dataclass(frozen=True, slots=True)
class StopTasks:
    """Stops tasks. The tasks in a newer task set start only after all older tasks have ended."""

    name: str
    tasks: tuple[ConnectorTaskId, ...]


@dataclass(frozen=True, slots=True)
class StopConnector:
    """Stops a connector that was deleted or reassigned to another worker."""

    name: str


Action: TypeAlias = StartConnector | SetTarget | StartTasks | StopTasks | StopConnector


def plan(
    state: ClusterConfigState,
    requested: Mapping[str, RequestedWork],
    assigned: Set[Item] | None = None,
) -> Sequence[Action]:
    """Return the required actions, sorted by connector.

    A connector or task that is being stopped is skipped until it has stopped.

    Args:
        state: Configuration of the cluster.
        requested: Connectors and tasks that the herder has started on this worker, by connector.
        assigned: Connectors and tasks that this worker may run, or None for all.
    """
    actions: list[Action] = []
    for name in sorted({*requested, *state.configs}):
        item = requested.get(name) or RequestedWork()
        target = state.target_state(name)
        is_assigned = name in state.configs and (assigned is None or name in assigned)
        is_running = item.config_offset >= 0 and not item.leaving
        if is_assigned and not item.leaving and item.config_offset != state.config_offsets[name]:
            actions.append(StartConnector(name))
        elif item.target is not target and name in state.configs and (is_running or item.tasks):
            actions.append(SetTarget(name, target))
        actions.extend(_task_actions(name, state, item, target, assigned))
        # a deleted connector is stopped after its tasks
        if is_running and not is_assigned and (name in state.configs or not item.tasks):
            actions.append(StopConnector(name))
    return actions


def _task_actions(
    name: str,
    state: ClusterConfigState,
    item: RequestedWork,
    target: TargetState,
    assigned: Set[Item] | None,
) -> Sequence[StartTasks | StopTasks]:
    number = state.start_numbers.get(name, -1)
    configured_tasks = () if target is TargetState.STOPPED else tuple(state.tasks(name))
    assigned_tasks = [task for task in configured_tasks if assigned is None or task in assigned]
    older_tasks = [
        task
        for task, start_number in item.tasks.items()
        if task not in configured_tasks or start_number != number
    ]
    stop = [
        task
        for task in item.tasks
        if task not in item.stopping and (task in older_tasks or task not in assigned_tasks)
    ]
    start = [] if older_tasks else [task for task in assigned_tasks if task not in item.tasks]
    actions: list[StartTasks | StopTasks] = []
    if stop:
        actions.append(StopTasks(name, tuple(stop)))
    if start:
        actions.append(StartTasks(name, tuple(start)))
    return actions
