"""`ConnectorState`: state of a connector and its tasks, with the reasons for waits and failures."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

RUNNING: Final = "RUNNING"
RESTING: Final = ("PAUSED", "STOPPED")  # target states that a user requested
_TRACE_LINES: Final = 2


@dataclass(frozen=True, slots=True)
class PartState:
    """State of a connector or of one of its tasks."""

    part: str  # `connector`, or a task such as `task 0`
    state: str
    worker: str
    # reason for the wait, or the first lines of the stack trace; empty if there is neither
    reason: str

    @property
    def runs(self) -> bool:
        """Return True if the connector or task is running and not waiting."""
        return self.state == RUNNING and not self.reason

    def __str__(self) -> str:
        return f"{self.part} is {self.state}" + (f": {self.reason}" if self.reason else "")


@dataclass(frozen=True, slots=True)
class ConnectorState:
    """State of a connector and its tasks."""

    name: str
    exists: bool = True
    parts: tuple[PartState, ...] = ()  # empty if there is no status yet

    @staticmethod
    def of(name: str, status: Mapping[str, Any] | None) -> ConnectorState:
        """Parse a status from the REST API.

        Args:
            name: The connector's name.
            status: The status. It is empty if the connector has no status yet, and None if the
                connector does not exist.
        """
        if not status:
            return ConnectorState(name, status is not None)
        tasks = [_part(f"task {each['id']}", each) for each in status["tasks"]]
        return ConnectorState(name, True, (_part("connector", status["connector"]), *tasks))

    @property
    def runs(self) -> bool:
        """Return True if the connector and at least one task are running, and none is waiting."""
        return len(self.parts) > 1 and all(each.runs for each in self.parts)

    @property
    def rests(self) -> bool:
        """Return True if a user paused or stopped the connector."""
        return bool(self.parts) and self.parts[0].state in RESTING

    @property
    def failures(self) -> frozenset[PartState]:
        return frozenset(each for each in self.parts if each.state == "FAILED")

    def reasons(self) -> Iterator[str]:
        """Yield the reasons why the connector is not running."""
        if not self.parts:
            yield "it has no status yet"
        elif len(self.parts) == 1 and self.parts[0].runs:
            yield "no task has started"
        yield from (str(each) for each in self.parts if not each.runs)

    def to_json(self) -> dict[str, Any]:
        """Return the state in JSON form."""
        parts = [
            {
                "part": each.part,
                "state": each.state,
                "worker": each.worker,
                "reason": each.reason or None,
            }
            for each in self.parts
        ]
        return {"connector": self.name, "exists": self.exists, "runs": self.runs, "parts": parts}


def _part(part: str, status: Mapping[str, Any]) -> PartState:
    waiting = status.get("waiting")
    if waiting is not None:
        reason = f"waits for {waiting['for']} since {waiting['since']}: {waiting['reason']}"
    else:
        lines = [
            line.strip() for line in str(status.get("trace") or "").splitlines() if line.strip()
        ]
        reason = " ".join(lines[:_TRACE_LINES])
    return PartState(part, status["state"], status.get("worker_id", ""), reason)
