"""Records of a worker group's control topic: leader epochs, heartbeats, and assignments.

Values are JSON objects with a version. Readers skip unreadable records and ignore fields that later
versions add. Items (connectors and tasks) are encoded as
`{"connectors": ["a"], "tasks": {"a": [0, 1]}}`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

from connect_py.model import ConnectorTaskId
from connect_py.storage import compact_json

EPOCH_KEY = b"epoch"
ASSIGNMENT_KEY = b"assignment"
MEMBER_PREFIX = b"member-"
VERSION = 1

Item: TypeAlias = str | ConnectorTaskId
"""A connector, identified by its name, or a task."""
Items: TypeAlias = frozenset[Item]
NO_ITEMS: Items = frozenset()


class AssignmentVersion(NamedTuple):
    """Version of an assignment: the leader's epoch and the round within the epoch.

    A later version compares greater than an earlier one.
    """

    epoch: int = 0
    round: int = 0


@dataclass(frozen=True, slots=True)
class Epoch:
    """One leader's term. The highest epoch number identifies the current leader."""

    number: int
    worker_url: str
    generation: int  # first generation that this leader writes in statuses
    # True if the leader writes without transactions and therefore cannot fence other leaders
    alone: bool = False

    def encode(self) -> bytes:
        alone = {"alone": True} if self.alone else {}
        return compact_json.encode(
            {
                "v": VERSION,
                "epoch": self.number,
                "worker": self.worker_url,
                "generation": self.generation,
                **alone,
            }
        )

    @staticmethod
    def decode(value: bytes | None) -> Epoch | None:
        """Return the decoded epoch, or None if the value is invalid."""
        data = _object(value)
        number, url, generation = data.get("epoch"), data.get("worker"), data.get("generation")
        if (
            not isinstance(number, int)
            or not isinstance(url, str)
            or not isinstance(generation, int)
        ):
            return None
        return Epoch(number, url, generation, data.get("alone") is True)


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """Heartbeat of a group member. A worker that loses its lease rejoins as a new member."""

    member: str
    number: int  # increases with each heartbeat of a member
    url: str  # advertised URL of the worker
    epoch: int  # highest epoch that this member has seen
    applied: AssignmentVersion  # version of the last applied assignment
    config_offset: int  # offset up to which the member has read the config topic
    assigned: Items = NO_ITEMS  # items of the applied assignment
    stopping: Items = NO_ITEMS  # revoked items that may still be running

    @property
    def key(self) -> bytes:
        return heartbeat_key(self.member)

    def encode(self) -> bytes:
        return compact_json.encode(
            {
                "v": VERSION,
                "number": self.number,
                "url": self.url,
                "epoch": self.epoch,
                "applied": list(self.applied),
                "config": self.config_offset,
                "assigned": _encode_items(self.assigned),
                "stopping": _encode_items(self.stopping),
            }
        )

    @staticmethod
    def decode(key: bytes, value: bytes | None) -> Heartbeat | None:
        """Return the decoded heartbeat, or None if the value is invalid."""
        data = _object(value)
        try:
            epoch, round_ = data["applied"]
            heartbeat = Heartbeat(
                key.removeprefix(MEMBER_PREFIX).decode(),
                data["number"],
                data["url"],
                data["epoch"],
                AssignmentVersion(epoch, round_),
                data["config"],
                _decode_items(data["assigned"]),
                _decode_items(data["stopping"]),
            )
        except (KeyError, TypeError, ValueError, AttributeError):
            return None
        numbers = (heartbeat.number, heartbeat.epoch, heartbeat.config_offset, *heartbeat.applied)
        return (
            heartbeat
            if isinstance(heartbeat.url, str) and all(isinstance(number, int) for number in numbers)
            else None
        )


@dataclass(frozen=True, slots=True)
class MemberAssignment:
    """Items assigned to one member."""

    url: str
    items: Items


@dataclass(frozen=True, slots=True)
class Assignment:
    """Items that are assigned to each member until the next assignment.

    Only the leader writes assignments, with its fenced producer. A member runs only the items that
    are assigned to it. An item is assigned to a member only after every other member that may have
    been running it has reported that it stopped or has definitely lost its lease.
    """

    version: AssignmentVersion
    generation: int
    config_offset: int  # offset of the configuration on which the assignment is based
    members: Mapping[str, MemberAssignment]  # by member ID
    # Unowned items, each with the URL of the worker for which it is reserved. Either that worker
    # may still return, or another member must stop the item first.
    awaited: Mapping[Item, str]
    delay_ms: int  # remaining time for which unowned items wait for their worker to return
    complete: bool = True  # True if the leader has a record of every member that may hold a lease

    def owner_url(self, item: Item) -> str | None:
        """Return the URL of the worker to which an item is assigned, or None if unassigned."""
        return next(
            (
                assigned_member.url
                for assigned_member in self.members.values()
                if item in assigned_member.items
            ),
            None,
        )

    def encode(self) -> bytes:
        return compact_json.encode(
            {
                "v": VERSION,
                "epoch": self.version.epoch,
                "round": self.version.round,
                "generation": self.generation,
                "config": self.config_offset,
                "delay": self.delay_ms,
                "complete": self.complete,
                "members": {
                    member: {"url": assigned_member.url, **_encode_items(assigned_member.items)}
                    for member, assigned_member in sorted(self.members.items())
                },
                "awaited": {
                    url: _encode_items(item for item, of in self.awaited.items() if of == url)
                    for url in sorted(set(self.awaited.values()))
                },
            }
        )

    @staticmethod
    def decode(value: bytes | None) -> Assignment | None:
        """Return the decoded assignment, or None if the value is invalid."""
        data = _object(value)
        try:
            assignment = Assignment(
                AssignmentVersion(data["epoch"], data["round"]),
                data["generation"],
                data["config"],
                {
                    member: MemberAssignment(assigned_member["url"], _decode_items(assigned_member))
                    for member, assigned_member in data["members"].items()
                },
                {
                    item: url
                    for url, work in data["awaited"].items()
                    for item in _decode_items(work)
                },
                data["delay"],
                data.get("complete") is True,
            )
        except (KeyError, TypeError, ValueError, AttributeError):
            return None
        numbers = (
            *assignment.version,
            assignment.generation,
            assignment.config_offset,
            assignment.delay_ms,
        )
        return assignment if all(isinstance(number, int) for number in numbers) else None


def heartbeat_key(member: str) -> bytes:
    """Return the key of a member's heartbeats. A null value means that the member has left."""
    return MEMBER_PREFIX + member.encode()


def sort_key(item: Item) -> tuple[bool, str, int]:
    """Return a key that sorts connectors before tasks, by name and task number."""
    if isinstance(item, ConnectorTaskId):
        return True, item.connector, item.task
    return False, item, -1


def _encode_items(items: Iterable[Item]) -> dict[str, Any]:
    connectors: list[str] = []
    tasks: dict[str, list[int]] = {}
    for item in sorted(items, key=sort_key):
        if isinstance(item, ConnectorTaskId):
            tasks.setdefault(item.connector, []).append(item.task)
        else:
            connectors.append(item)
    return {"connectors": connectors, "tasks": tasks}


def _decode_items(work: Mapping[str, Any]) -> Items:
    tasks = {
        ConnectorTaskId(name, int(number))
        for name, numbers in work["tasks"].items()
        for number in numbers
    }
    return frozenset(tasks | {str(name) for name in work["connectors"]})


def _object(value: bytes | None) -> dict[str, Any]:
    try:
        data = compact_json.decode(value or b"")
    except ValueError:
        return {}
    return data if isinstance(data, dict) else {}
