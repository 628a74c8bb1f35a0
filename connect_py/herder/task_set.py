"""Whether a connector's new task configurations have to be published, and whether a task set is in
force."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from connect_py.model import TargetState
from connect_py.storage.config_state import ClusterConfigState


def differs(
    state: ClusterConfigState, name: str, configs: Sequence[Mapping[str, str]]
) -> str | None:
    """Say why these task configurations are not those in force; None when they are.

    Values are compared as they are stored, with their placeholders. Any change of the connector's
    own configuration counts, because tasks read it too.
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
    """Whether a connector is to run, with the tasks that were started under this number and the
    configuration of then.

    Where the configuration has changed since, its tasks are about to be replaced.
    """
    if name not in state.configs or state.target_state(name) is not TargetState.STARTED:
        return False
    unchanged = state.applied_configs.get(name) == state.configs[name]
    return unchanged and state.start_numbers.get(name) == start_number
