"""Comparison of a connector's new task configurations with its current ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from connect_py.model import TargetState
from connect_py.storage.config_state import ClusterConfigState


def differs(
    state: ClusterConfigState, name: str, configs: Sequence[Mapping[str, str]]
) -> str | None:
    """Return the reason why task configurations differ from the current ones, or None if they do
    not.

    Values are compared with unresolved placeholders. Any change of the connector's own
    configuration counts as well, because tasks read it too.
    """
    if name in state.inconsistent:
        return "its task configurations are incomplete"
    current = state.all_task_configs(name)
    if len(current) != len(configs):
        return f"the number of tasks changes from {len(current)} to {len(configs)}"
    if any(dict(old) != dict(new) for old, new in zip(current, configs, strict=True)):
        return "task configurations changed"
    if name not in state.applied_configs or dict(state.applied_configs[name]) != dict(
        state.configs[name]
    ):
        return "the connector's configuration changed"
    return None


def is_current(state: ClusterConfigState, name: str, start_number: int) -> bool:
    """Return True if a connector should run with the task set of this number and an unchanged
    configuration.

    If the configuration has changed since, the tasks are about to be replaced.
    """
    if name not in state.configs or state.target_state(name) is not TargetState.STARTED:
        return False
    unchanged = state.applied_configs.get(name) == state.configs[name]
    return unchanged and state.start_numbers.get(name) == start_number
