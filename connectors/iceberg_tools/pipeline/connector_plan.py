"""`ConnectorPlan`: differences between the connectors in a file and on a worker."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from connect_py.api.config import Type
from connect_py.api.secret_keys import SECRET_KEY, SECRET_MEMBER, URL_PASSWORD
from connectors.iceberg.config.sink_options import CONFIG_DEF
from connectors.iceberg_tools.pipeline.compiler import OWNER_KEY
from connectors.iceberg_tools.pipeline.kinds import PROVIDER
from connectors.iceberg_tools.pipeline.pipeline_file import Pipeline
from connectors.iceberg_tools.pipeline.worker_client import RunningConnector

HIDDEN: Final = "[hidden]"
_SECRET_KEYS: Final = frozenset(key.name for key in CONFIG_DEF if key.type is Type.PASSWORD)


class Action(Enum):
    """Action that a plan specifies for a connector."""

    CREATE = "create"
    CHANGE = "change"
    UNCHANGED = "unchanged"
    DELETE = "delete"
    REFUSED = "refused"  # the connector exists, but another pipeline or no pipeline manages it


@dataclass(frozen=True, slots=True)
class KeyChange:
    """Values of a key before and after the change. None means that the key does not exist."""

    key: str
    before: str | None
    after: str | None

    def __str__(self) -> str:
        if self.before is None:
            return f"+ {self.key}: {to_display(self.key, self.after)}"
        if self.after is None:
            return f"- {self.key}: {to_display(self.key, self.before)}"
        before, after = to_display(self.key, self.before), to_display(self.key, self.after)
        return f"~ {self.key}: {before} -> {after}"


@dataclass(frozen=True, slots=True)
class ConnectorChange:
    """The action on one connector, with the changed keys."""

    name: str
    action: Action
    keys: tuple[KeyChange, ...] = ()
    reason: str = ""  # reason for REFUSED

    def to_json(self) -> dict[str, Any]:
        """Return the change in JSON form. Secrets are hidden."""
        keys = [
            {
                "key": each.key,
                "before": to_display(each.key, each.before),
                "after": to_display(each.key, each.after),
            }
            for each in self.keys
        ]
        return {
            "connector": self.name,
            "action": self.action.value,
            "keys": keys,
            "reason": self.reason or None,
        }


@dataclass(frozen=True, slots=True)
class ConnectorPlan:
    """The changes to all connectors.

    Connectors in the file are first, in file order, followed by connectors that are no longer in
    the file.
    """

    changes: tuple[ConnectorChange, ...]

    def of(self, *actions: Action) -> list[ConnectorChange]:
        return [each for each in self.changes if each.action in actions]

    @property
    def differs(self) -> bool:
        return any(each.action is not Action.UNCHANGED for each in self.changes)

    def to_json(self) -> dict[str, Any]:
        """Return the plan in JSON form. Secrets are hidden."""
        return {"differs": self.differs, "changes": [each.to_json() for each in self.changes]}


def make_plan(
    pipeline: Pipeline, present: Mapping[str, RunningConnector], *, adopt: bool = False
) -> ConnectorPlan:
    """Compare the connectors in a file with the connectors on a worker.

    Args:
        pipeline: The pipeline file.
        present: Connectors on the worker, by name.
        adopt: True to change existing connectors without a pipeline and add them to this pipeline.
    """
    changes = []
    for name, connector in pipeline.connectors.items():
        running = present.get(name)
        before = (
            {}
            if running is None
            else {key: value for key, value in running.config.items() if key != "name"}
        )
        keys = tuple(_differences(before, connector.config))
        owner = before.get(OWNER_KEY)
        if running is None:
            changes.append(ConnectorChange(name, Action.CREATE, keys))
        elif owner != pipeline.name and not (adopt and owner is None):
            reason = (
                f"is managed by pipeline {owner}"
                if owner
                else "has no pipeline; --adopt adds it to this one"
            )
            changes.append(ConnectorChange(name, Action.REFUSED, (), reason))
        else:
            changes.append(ConnectorChange(name, Action.CHANGE if keys else Action.UNCHANGED, keys))
    unnamed = (name for name in owned(pipeline.name, present) if name not in pipeline.connectors)
    return ConnectorPlan((*changes, *(ConnectorChange(name, Action.DELETE) for name in unnamed)))


def owned(pipeline: str, present: Mapping[str, RunningConnector]) -> list[str]:
    """Return the names of the connectors that a pipeline manages."""
    return [name for name, each in present.items() if each.config.get(OWNER_KEY) == pipeline]


def _differences(before: Mapping[str, str], after: Mapping[str, str]) -> Iterator[KeyChange]:
    for key in sorted(before.keys() | after.keys()):
        if before.get(key) != after.get(key):
            yield KeyChange(key, before.get(key), after.get(key))


def to_display(key: str, value: str | None) -> str | None:
    """Format a value for display. Secrets are hidden; references to config providers are not."""
    if value is None or PROVIDER.fullmatch(value.strip()) is not None:
        return value
    if key in _SECRET_KEYS or SECRET_KEY.search(key) is not None:
        return HIDDEN
    return SECRET_MEMBER.sub(rf"\1{HIDDEN}", URL_PASSWORD.sub(rf"\1{HIDDEN}@", value))
