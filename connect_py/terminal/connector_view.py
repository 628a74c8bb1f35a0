"""`ConnectorView`: a connector and its tasks, as a worker's REST API shows them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

FAILED: Final = "FAILED"
NOT_RUN: Final = frozenset({FAILED, "UNASSIGNED"})  # states in which no user wanted it


@dataclass(frozen=True, slots=True)
class ItemView:
    """A connector instance, or one of its tasks."""

    what: str  # `connector` or `task 0`
    state: str
    worker: str
    trace: str = ""
    waits_for: str = ""
    waits_since: str = ""
    reason: str = ""

    @staticmethod
    def of(what: str, status: Mapping[str, Any]) -> ItemView:
        """Read the part of a status that is about one item."""
        waiting = status.get("waiting") or {}
        return ItemView(
            what,
            status.get("state", "UNKNOWN"),
            status.get("worker_id", ""),
            status.get("trace") or "",
            waiting.get("for", ""),
            waiting.get("since", ""),
            waiting.get("reason", ""),
        )

    def remark(self) -> str:
        """The first line of the trace, or what a running item waits for."""
        if self.trace:
            return first_line(self.trace)
        return f"waits for {self.waits_for}: {self.reason}" if self.waits_for else ""


@dataclass(frozen=True, slots=True)
class ConnectorView:
    """What commands show of a connector."""

    name: str
    type: str
    plugin: str
    connector: ItemView
    tasks: tuple[ItemView, ...]

    @staticmethod
    def of(name: str, info: Mapping[str, Any], status: Mapping[str, Any] | None) -> ConnectorView:
        """Read the answers of the REST API; None: it knows no status yet."""
        status = status or {}
        connector = ItemView.of("connector", status.get("connector", {}))
        tasks = tuple(ItemView.of(f"task {task['id']}", task) for task in status.get("tasks", []))
        kind = status.get("type") or info.get("type") or "unknown"
        return ConnectorView(
            name, kind, info.get("config", {}).get("connector.class", ""), connector, tasks
        )

    @staticmethod
    def all_of(answer: Mapping[str, Any]) -> list[ConnectorView]:
        """Read the answer about all connectors; sorted by name."""
        return [
            ConnectorView.of(name, found.get("info", {}), found.get("status"))
            for name, found in sorted(answer.items())
        ]

    def items(self) -> Iterator[ItemView]:
        """The connector instance and its tasks."""
        yield self.connector
        yield from self.tasks

    @property
    def runs(self) -> bool:
        """Whether each item is in a state that a user asked for."""
        return not any(item.state in NOT_RUN for item in self.items())

    def tasks_by_state(self) -> str:
        """As `2 RUNNING, 1 FAILED`."""
        counts = Counter(task.state for task in self.tasks)
        return ", ".join(f"{count} {state}" for state, count in sorted(counts.items())) or "none"

    def remark(self) -> str:
        """Why the connector or one of its tasks failed, or what it waits for."""
        remarks = [item for item in self.items() if item.remark()]
        # stable: the first that failed, else the first that waits
        remarks.sort(key=lambda item: item.state != FAILED)
        return f"{remarks[0].what}: {remarks[0].remark()}" if remarks else ""


def first_line(trace: str) -> str:
    """The first line of a trace; its class without the package."""
    line = next((line.strip() for line in trace.splitlines() if line.strip()), "")
    return re.sub(r"^(?:\w+\.)+(?=\w+: )", "", line)
