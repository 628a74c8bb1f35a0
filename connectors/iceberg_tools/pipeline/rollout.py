"""`Rollout`: makes the connectors of a worker those of a pipeline file, and waits until they
run."""

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
from connectors.iceberg_tools.pipeline.mistake import Mistakes, Place
from connectors.iceberg_tools.pipeline.pipeline_file import Pipeline
from connectors.iceberg_tools.pipeline.worker_client import WorkerClient

_LOOK_SECONDS: Final = 0.5
_LOOKS: Final = 2  # in a row, so that a task of before is not taken for the new one
_OLD_FAILURE_SECONDS: Final = 15.0  # how long failures of before may stay while tasks start anew


def worker_mistakes(client: WorkerClient, pipeline: Pipeline, plan: ConnectorPlan) -> Mistakes:
    """What the worker says against connectors that are to be created or changed, at the fields of
    the file."""
    mistakes = Mistakes()
    for change in plan.of(Action.CREATE, Action.CHANGE):
        connector = pipeline.connectors[change.name]
        for key, problem in client.problems(change.name, connector.config):
            source = connector.sources.get(key)
            place, path = (
                (source.place, source.path) if source is not None else _target_place(connector)
            )
            mistakes.add(place, path, f"{problem} (key {key} of connector {change.name})")
    return mistakes


def _target_place(connector: CompiledConnector) -> tuple[Place, str]:
    return connector.target.place, connector.target.path


@dataclass(slots=True)
class Rollout:
    """Used once, for one plan whose configurations the worker accepts."""

    client: WorkerClient
    pipeline: Pipeline
    plan: ConnectorPlan
    say: Callable[[str], None] = lambda _: None
    done: list[str] = field(default_factory=list)  # `created shop-orders`
    # failures when a connector was changed
    _before: dict[str, frozenset[PartState]] = field(default_factory=dict)
    _seen: dict[str, float] = field(default_factory=dict)  # since when they are seen after that

    def apply(self) -> None:
        """Create, change and delete.

        Raises: ConnectError: A request failed; `done` names those before it. The next roll-out goes
            on from there.
        """
        words = {Action.CREATE: "created", Action.CHANGE: "changed", Action.DELETE: "deleted"}
        if changed := {change.name for change in self.plan.of(Action.CHANGE)}:
            present = self.client.connectors()
            self._before = {
                name: ConnectorState.of(name, present[name].status).failures
                for name in changed & present.keys()
            }
        for change in self.plan.of(*words):
            try:
                if change.action is Action.DELETE:
                    self.client.delete(change.name)
                else:
                    self.client.put(change.name, self.pipeline.connectors[change.name].config)
            except ConnectError as error:
                raise ConnectError(
                    f"{change.name}: {error}; apply again to go on from here"
                ) from error
            self.done.append(f"{words[change.action]} {change.name}")
            self.say(self.done[-1])

    def wait(self, seconds: float) -> list[ConnectorState]:
        """The states of all connectors of the file, once all run or one fails, at the latest after
        that time."""
        deadline = time.monotonic() + seconds
        looks = 0
        while True:
            states = self._states(self.pipeline.connectors.values())
            settled = all(each.runs or each.rests for each in states)
            failed = [self._has_failed(each) for each in states]  # of all: each look counts
            looks = looks + 1 if settled or any(failed) else 0
            if looks >= _LOOKS or time.monotonic() > deadline:
                return states
            time.sleep(_LOOK_SECONDS)

    def _states(self, connectors: Iterable[CompiledConnector]) -> list[ConnectorState]:
        present = self.client.connectors()
        states = []
        for connector in connectors:
            status = present[connector.name].status if connector.name in present else None
            state = ConnectorState.of(connector.name, status)
            if state.runs and not self._has_arrived(connector):
                state = ConnectorState(connector.name, True, state.parts[:1])
            states.append(state)
        return states

    def _has_failed(self, state: ConnectorState) -> bool:
        """Whether it failed with its new configuration. A failure of before may be shown until its
        tasks start anew."""
        failures = state.failures
        if not failures:
            if state.parts:
                self._before.pop(state.name, None)  # the same failure is a new one from here on
            return False
        if state.parts[0] not in failures and not self._has_arrived(
            self.pipeline.connectors[state.name]
        ):
            return False
        if not failures <= self._before.get(state.name, frozenset()):
            return True
        now = time.monotonic()
        return now - self._seen.setdefault(state.name, now) >= _OLD_FAILURE_SECONDS

    def _has_arrived(self, connector: CompiledConnector) -> bool:
        """Whether the tasks have the new configuration."""
        return all(
            _carries(config, connector.config)
            for config in self.client.task_configs(connector.name)
        )


def _carries(task: Mapping[str, str], wanted: Mapping[str, str]) -> bool:
    return all(
        task.get(key) == value for key, value in wanted.items() if PROVIDER.search(value) is None
    )
