"""What has to start and stop so that this worker runs its share of what the config topic says: data
in, actions out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import TypeAlias

from connect_py.model import ConnectorTaskId, TargetState
from connect_py.storage.config_state import ClusterConfigState
from connect_py.storage.control_records import Item


@dataclass(slots=True)
class RequestedWork:
    """What the herder asked the worker to do for one connector."""

    # of the configuration that its connector was started with; -1: its connector is not here
    config_offset: int = -1
    target: TargetState = TargetState.STARTED
    # the start number of the set each belongs to
    tasks: dict[ConnectorTaskId, int] = field(default_factory=dict)
    # of these tasks: asked to stop, may still run
    stopping: set[ConnectorTaskId] = field(default_factory=set)
    leaving: bool = False  # its connector was asked to stop for good

    @property
    def empty(self) -> bool:
        return self.config_offset < 0 and not self.tasks


@dataclass(frozen=True, slots=True)
class StartConnector:
    """Start it, or start it again with a new configuration."""

    name: str


@dataclass(frozen=True, slots=True)
class SetTarget:
    """Tell connector and tasks of a new target state."""

    name: str
    target: TargetState


@dataclass(frozen=True, slots=True)
class StartTasks:
    name: str
    tasks: tuple[ConnectorTaskId, ...]


@dataclass(frozen=True, slots=True)
class StopTasks:
    """Stop these; tasks of a newer set start only when all of an older one have ended."""

    name: str
    tasks: tuple[ConnectorTaskId, ...]


@dataclass(frozen=True, slots=True)
class StopConnector:
    """The connector was deleted, or another worker is to run it."""

    name: str


Action: TypeAlias = StartConnector | SetTarget | StartTasks | StopTasks | StopConnector


def plan(
    state: ClusterConfigState,
    requested: Mapping[str, RequestedWork],
    assigned: Set[Item] | None = None,
) -> Sequence[Action]:
    """Return what to do, sorted by connector; nothing when everything runs as it should.

    A connector that is on its way out, and tasks that are being stopped, are left alone until that
    is over.

    Args:
        held: What the herder asked of this worker so far.
        assigned: What this worker may run; everything when None.
    """
    actions: list[Action] = []
    for name in sorted({*requested, *state.configs}):
        item = requested.get(name) or RequestedWork()
        target = state.target_state(name)
        mine = name in state.configs and (assigned is None or name in assigned)
        here = item.config_offset >= 0 and not item.leaving
        if mine and not item.leaving and item.config_offset != state.config_offsets[name]:
            actions.append(StartConnector(name))
        elif item.target is not target and name in state.configs and (here or item.tasks):
            actions.append(SetTarget(name, target))
        actions.extend(_task_actions(name, state, item, target, assigned))
        # a deleted one ends after its tasks
        if here and not mine and (name in state.configs or not item.tasks):
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
    wanted = () if target is TargetState.STOPPED else tuple(state.tasks(name))
    mine = [task for task in wanted if assigned is None or task in assigned]
    older = [task for task, of in item.tasks.items() if task not in wanted or of != number]
    stop = [
        task
        for task in item.tasks
        if task not in item.stopping and (task in older or task not in mine)
    ]
    start = [] if older else [task for task in mine if task not in item.tasks]
    actions: list[StartTasks | StopTasks] = []
    if stop:
        actions.append(StopTasks(name, tuple(stop)))
    if start:
        actions.append(StartTasks(name, tuple(start)))
    return actions
