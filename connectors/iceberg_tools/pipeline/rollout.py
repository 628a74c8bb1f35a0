"""`Rollout`: applies a pipeline file to a worker and waits until its connectors are running."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from connect_py.api.errors import ConnectError
from connectors.iceberg_tools.pipeline.compiler import CompiledConnector
from connectors.iceberg_tools.pipeline.connector_plan import Action, ConnectorPlan
from connectors.iceberg_tools.pipeline.connector_state import ConnectorState, PartState
from connectors.iceberg_tools.pipeline.kinds import PROVIDER
from connectors.iceberg_tools.pipeline.mistake import FilePosition, Mistakes
from connectors.iceberg_tools.pipeline.pipeline_file import Pipeline
from connectors.iceberg_tools.pipeline.worker_client import WorkerClient

_CHECK_SECONDS: Final = 0.5
# number of consecutive checks that must agree, because the first check may see a task that still
# has its previous configuration
_CHECKS: Final = 2
_OLD_FAILURE_SECONDS: Final = 15.0  # how long an earlier failure may remain while tasks restart


def worker_mistakes(client: WorkerClient, pipeline: Pipeline, plan: ConnectorPlan) -> Mistakes:
    """Validate new and changed connectors on the worker, and return the problems.

    Each problem has the position of the field that caused it, or of the target if no field sets the
    key.
    """
    mistakes = Mistakes()
    for change in plan.of(Action.CREATE, Action.CHANGE):
        connector = pipeline.connectors[change.name]
        for key, problem in client.problems(change.name, connector.config):
            source = connector.sources.get(key)
            position, path = (
                (source.position, source.path)
                if source is not None
                else _target_position(connector)
            )
            mistakes.add(position, path, f"{problem} (key {key} of connector {change.name})")
    return mistakes


def _target_position(connector: CompiledConnector) -> tuple[FilePosition, str]:
    return connector.target.position, connector.target.path


@dataclass(slots=True)
class Rollout:
    """Applies one plan, whose configurations the worker has validated. Call `apply` only once."""

    client: WorkerClient
    pipeline: Pipeline
    plan: ConnectorPlan
    say: Callable[[str], None] = lambda _: None
    # completed actions in order, such as `created shop-orders`
    completed: list[str] = field(default_factory=list)
    # failures of each connector from before it was changed
    _earlier_failures: dict[str, frozenset[PartState]] = field(default_factory=dict)
    # time at which an earlier failure was first seen after the change, by connector
    _failing_since: dict[str, float] = field(default_factory=dict)

    def apply(self) -> None:
        """Create, change, and delete the connectors.

        Raises:
            ConnectError: A request failed. `completed` lists the actions that preceded it. The next
                rollout performs the remaining actions.
        """
        past_participles = {
            Action.CREATE: "created",
            Action.CHANGE: "changed",
            Action.DELETE: "deleted",
        }
        if changed := {change.name for change in self.plan.of(Action.CHANGE)}:
            present = self.client.connectors()
            self._earlier_failures = {
                name: ConnectorState.of(name, present[name].status).failures
                for name in changed & present.keys()
            }
        for change in self.plan.of(*past_participles):
            try:
                if change.action is Action.DELETE:
                    self.client.delete(change.name)
                else:
                    self.client.put(change.name, self.pipeline.connectors[change.name].config)
            except ConnectError as error:
                raise ConnectError(
                    f"{change.name}: {error}; apply again to continue from here"
                ) from error
            self.completed.append(f"{past_participles[change.action]} {change.name}")
            self.say(self.completed[-1])

    def wait(self, seconds: float) -> list[ConnectorState]:
        """Wait until all connectors are running or paused, or one fails. Return their states."""
        deadline = time.monotonic() + seconds
        checks = 0
        while True:
            states = self._states(self.pipeline.connectors.values())
            settled = all(each.runs or each.rests for each in states)
            # not a generator, because every connector must be checked to update its failures
            failures = [self._has_failed(each) for each in states]
            checks = checks + 1 if settled or any(failures) else 0
            if checks >= _CHECKS or time.monotonic() > deadline:
                return states
            time.sleep(_CHECK_SECONDS)

    def _states(self, connectors: Iterable[CompiledConnector]) -> list[ConnectorState]:
        present = self.client.connectors()
        states = []
        for connector in connectors:
            status = present[connector.name].status if connector.name in present else None
            state = ConnectorState.of(connector.name, status)
            if state.runs and not self._has_new_config(connector):
                state = ConnectorState(connector.name, True, state.parts[:1])
            states.append(state)
        return states

    def _has_failed(self, state: ConnectorState) -> bool:
        """Return True if a connector failed with its new configuration.

        The status may contain an earlier failure until the tasks restart.
        """
        failures = state.failures
        if not failures:
            if state.parts:
                # if the same failure occurs again, it is a new one
                self._earlier_failures.pop(state.name, None)
            return False
        if state.parts[0] not in failures and not self._has_new_config(
            self.pipeline.connectors[state.name]
        ):
            return False
        if not failures <= self._earlier_failures.get(state.name, frozenset()):
            return True
        now = time.monotonic()
        return now - self._failing_since.setdefault(state.name, now) >= _OLD_FAILURE_SECONDS

    def _has_new_config(self, connector: CompiledConnector) -> bool:
        """Return True if all tasks of a connector have the new configuration."""
        return all(
            _has_values(config, connector.config)
            for config in self.client.task_configs(connector.name)
        )


def _has_values(task: Mapping[str, str], config: Mapping[str, str]) -> bool:
    return all(
        task.get(key) == value for key, value in config.items() if PROVIDER.search(value) is None
    )
