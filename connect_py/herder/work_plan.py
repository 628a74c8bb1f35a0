"""What has to start and stop so that this worker runs what the config topic says: plain data in, actions out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from connect_py.model import ConnectorTaskId, TargetState
from connect_py.storage.config_state import ClusterConfigState


@dataclass(slots=True)
class Held:
    """What the worker was told to do for one connector. `-1` stands for nothing."""

    config_offset: int = -1  # of the configuration that its connector was started with
    target: TargetState = TargetState.STARTED
    tasks: tuple[ConnectorTaskId, ...] = ()
    start_number: int = -1  # of the task set that runs
    stopping: bool = False  # its tasks were asked to stop and some may still run
    leaving: bool = False  # its connector was asked to stop for good


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
    """Stop a task set; the next one starts only when all of it has ended."""

    name: str
    tasks: tuple[ConnectorTaskId, ...]


@dataclass(frozen=True, slots=True)
class RemoveConnector:
    """The connector was deleted: stop it and its tasks."""

    name: str
    tasks: tuple[ConnectorTaskId, ...]


Action: TypeAlias = StartConnector | SetTarget | StartTasks | StopTasks | RemoveConnector


def plan(state: ClusterConfigState, held: Mapping[str, Held]) -> Sequence[Action]:
    """Return what to do, sorted by connector; nothing when everything runs as it should.

    A connector that is on its way out, and a task set that is being stopped, are left alone until that is over.
    """
    actions: list[Action] = []
    for name in sorted({*held, *state.configs}):
        item = held.get(name)
        if item is not None and item.leaving:
            continue
        if name not in state.configs:
            actions.append(RemoveConnector(name, item.tasks if item else ()))
            continue
        target = state.target_state(name)
        if item is None or item.config_offset != state.config_offsets[name]:
            actions.append(StartConnector(name))
        elif item.target is not target:
            actions.append(SetTarget(name, target))
        actions.extend(_task_actions(name, state, item, target))
    return actions


def _task_actions(
    name: str, state: ClusterConfigState, item: Held | None, target: TargetState
) -> Sequence[StartTasks | StopTasks]:
    wanted = () if target is TargetState.STOPPED else tuple(state.tasks(name))
    if item is not None and item.stopping:
        return []
    if item is not None and item.tasks:
        if item.tasks != wanted or item.start_number != state.start_numbers.get(name, -1):
            return [StopTasks(name, item.tasks)]
        return []
    return [StartTasks(name, wanted)] if wanted else []
