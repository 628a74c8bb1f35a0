"""`ConnectorView`: a connector and its tasks, as a worker's REST API reports them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

FAILED: Final = "FAILED"
NOT_RUN: Final = frozenset({FAILED, "UNASSIGNED"})  # states that a user cannot request


@dataclass(frozen=True, slots=True)
class ItemView:
    """A connector instance or one of its tasks."""

    label: str  # `connector` or `task 0`
    state: str
    worker: str
    trace: str = ""
    waits_for: str = ""
    waits_since: str = ""
    reason: str = ""

    @staticmethod
    def of(label: str, status: Mapping[str, Any]) -> ItemView:
        """Parse the part of a status that describes one connector instance or task."""
        waiting = status.get("waiting") or {}
        return ItemView(
            label,
            status.get("state", "UNKNOWN"),
            status.get("worker_id", ""),
            status.get("trace") or "",
            waiting.get("for", ""),
            waiting.get("since", ""),
            waiting.get("reason", ""),
        )

    def remark(self) -> str:
        """Return the first line of the trace, or the reason why a running instance is waiting."""
        if self.trace:
            return first_line(self.trace)
        return f"waits for {self.waits_for}: {self.reason}" if self.waits_for else ""


@dataclass(frozen=True, slots=True)
class ConnectorView:
    """A connector instance and its tasks."""

    name: str
    type: str
    plugin: str
    connector: ItemView
    tasks: tuple[ItemView, ...]

    @staticmethod
    def of(name: str, info: Mapping[str, Any], status: Mapping[str, Any] | None) -> ConnectorView:
        """Parse REST API responses. The status is None until the worker has reported a status."""
        status = status or {}
        connector = ItemView.of("connector", status.get("connector", {}))
        tasks = tuple(ItemView.of(f"task {task['id']}", task) for task in status.get("tasks", []))
        kind = status.get("type") or info.get("type") or "unknown"
        return ConnectorView(
            name, kind, info.get("config", {}).get("connector.class", ""), connector, tasks
        )

    @staticmethod
    def all_of(connectors: Mapping[str, Any]) -> list[ConnectorView]:
        """Parse the response about all connectors. The result is sorted by name."""
        return [
            ConnectorView.of(name, each.get("info", {}), each.get("status"))
            for name, each in sorted(connectors.items())
        ]

    def items(self) -> Iterator[ItemView]:
        """Yield the connector instance and its tasks."""
        yield self.connector
        yield from self.tasks

    @property
    def runs(self) -> bool:
        """Return True if the connector and all tasks are in states that a user can request."""
        return not any(item.state in NOT_RUN for item in self.items())

    def tasks_by_state(self) -> str:
        """Return the number of tasks per state, for example `2 RUNNING, 1 FAILED`."""
        counts = Counter(task.state for task in self.tasks)
        return ", ".join(f"{count} {state}" for state, count in sorted(counts.items())) or "none"

    def remark(self) -> str:
        """Return the reason for a failed or waiting connector or task, or an empty string."""
        items = [item for item in self.items() if item.remark()]
        # the sort is stable, so the first failed item precedes the first waiting item
        items.sort(key=lambda item: item.state != FAILED)
        return f"{items[0].label}: {items[0].remark()}" if items else ""


def first_line(trace: str) -> str:
    """Return the first line of a stack trace, with the class name without its package."""
    line = next((line.strip() for line in trace.splitlines() if line.strip()), "")
    return re.sub(r"^(?:\w+\.)+(?=\w+: )", "", line)
