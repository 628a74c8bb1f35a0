"""Compares and writes task sets. A task set contains all task configurations of a connector."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from connect_py.api.errors import NotFoundError
from connect_py.herder.herder import BadRequestError
from connect_py.model import ConnectorTaskId, TargetState
from connect_py.plurals import pluralize
from connect_py.storage.config_state import ClusterConfigState
from connect_py.storage.config_store import ConfigStore

log = logging.getLogger(__name__)


def difference(
    state: ClusterConfigState, name: str, configs: Sequence[Mapping[str, str]]
) -> str | None:
    """Return how new task configurations differ from the current task set, or None if they do not.

    Config provider placeholders are compared unresolved. A change to the connector's configuration
    also counts as a difference, because tasks read that configuration.
    """
    if name in state.inconsistent:
        return "its task configurations are incomplete"
    current = state.all_task_configs(name)
    if len(current) != len(configs):
        return f"the number of tasks changes from {len(current)} to {len(configs)}"
    if any(dict(old) != dict(new) for old, new in zip(current, configs, strict=True)):
        return "task configurations have changed"
    if name not in state.applied_configs or dict(state.applied_configs[name]) != dict(
        state.configs[name]
    ):
        return "the connector's configuration has changed"
    return None


def is_current(state: ClusterConfigState, name: str, start_number: int) -> bool:
    """Return True if a connector should be running with the task set that has this start number.

    A start number is the config topic offset of the record that last started or changed the
    connector. Returns False if the connector's configuration has changed since then, because a new
    task set is about to be published.
    """
    if name not in state.configs or state.target_state(name) is not TargetState.STARTED:
        return False
    unchanged = state.applied_configs.get(name) == state.configs[name]
    return unchanged and state.start_numbers.get(name) == start_number


def tasks_to_run(state: ClusterConfigState, name: str) -> Sequence[ConnectorTaskId]:
    """Return the tasks of a connector, or an empty sequence if its target state is STOPPED."""
    return () if state.target_state(name) is TargetState.STOPPED else state.tasks(name)


def write_task_configs(store: ConfigStore, name: str, configs: Sequence[Mapping[str, str]]) -> None:
    """Write a task set to the config topic if it has changed. Blocks.

    Raises:
        NotFoundError: The connector was deleted.
        BadRequestError: The connector was stopped.
        ConnectError: The topic cannot be written.
    """
    state = store.snapshot()
    if name not in state.configs:
        raise NotFoundError(f"Connector {name} not found")
    if configs and state.target_state(name) is TargetState.STOPPED:
        raise BadRequestError(
            f"Cannot submit non-empty set of task configs for stopped connector {name}"
        )
    reason = difference(state, name, configs)
    if reason is not None:
        log.info(
            "connector %s: publishing %s because %s",
            name,
            pluralize(len(configs), "task configuration"),
            reason,
        )
        store.put_task_configs(name, configs)
