"""What stands in the control topic of a worker group: terms of leaders, hellos of members,
assignments.

Values are JSON with a version; readers skip what they cannot read and ignore fields of later
versions. Work is written as `{"connectors": ["a"], "tasks": {"a": [0, 1]}}`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

from connect_py.model import ConnectorTaskId
from connect_py.storage import compact_json

EPOCH_KEY = b"epoch"
ASSIGNMENT_KEY = b"assignment"
HELLO_PREFIX = b"member-"
VERSION = 1

Item: TypeAlias = str | ConnectorTaskId
"""A piece of work: a connector by its name, or a task."""
Items: TypeAlias = frozenset[Item]
NOTHING: Items = frozenset()


class Turn(NamedTuple):
    """Which assignment: the leader's epoch, and the round in it. Later ones compare greater."""

    epoch: int = 0
    round: int = 0


@dataclass(frozen=True, slots=True)
class Epoch:
    """One term of one leader. A higher number wins everywhere; the generation goes into
    statuses."""

    number: int
    worker_url: str
    generation: int
    # the leader writes without transactions: nothing would keep another one from writing, too
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
        """None for anything that is no epoch."""
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
class Hello:
    """A member's sign of life. A member is one life of one worker: who loses its lease comes back
    as another."""

    member: str
    number: int  # rises with each hello of a member
    url: str  # advertised
    epoch: int  # the highest this member has heard of
    applied: Turn  # the assignment that it works by
    config_offset: int  # how far it has read the config topic
    assigned: Items = NOTHING  # what that assignment gives it
    stopping: Items = NOTHING  # what it has to stop and may still run

    @property
    def key(self) -> bytes:
        return hello_key(self.member)

    def encode(self) -> bytes:
        return compact_json.encode(
            {
                "v": VERSION,
                "number": self.number,
                "url": self.url,
                "epoch": self.epoch,
                "applied": list(self.applied),
                "config": self.config_offset,
                "assigned": _work(self.assigned),
                "stopping": _work(self.stopping),
            }
        )

    @staticmethod
    def decode(key: bytes, value: bytes | None) -> Hello | None:
        """None for anything that is no hello."""
        data = _object(value)
        try:
            epoch, round_ = data["applied"]
            hello = Hello(
                key.removeprefix(HELLO_PREFIX).decode(),
                data["number"],
                data["url"],
                data["epoch"],
                Turn(epoch, round_),
                data["config"],
                _items(data["assigned"]),
                _items(data["stopping"]),
            )
        except (KeyError, TypeError, ValueError, AttributeError):
            return None
        numbers = (hello.number, hello.epoch, hello.config_offset, *hello.applied)
        return (
            hello
            if isinstance(hello.url, str) and all(isinstance(number, int) for number in numbers)
            else None
        )


@dataclass(frozen=True, slots=True)
class Place:
    """What an assignment gives to one member."""

    url: str
    items: Items


@dataclass(frozen=True, slots=True)
class Assignment:
    """Who may run what, until the next one. Only the leader writes it, through its fenced producer.

    A member runs nothing but its own place; an item stands in a new place only after everybody else
    who may have run it has said that it stopped, or surely lost its lease.
    """

    turn: Turn
    generation: int
    config_offset: int  # of the configuration that it divides
    places: Mapping[str, Place]  # by member
    # work that waits for the worker of this URL: to come back, or for others to stop it
    awaited: Mapping[Item, str]
    delay_ms: int  # how long it still waits
    complete: bool = True  # every member that may hold a lease is known to its leader

    def owner_url(self, item: Item) -> str | None:
        """The URL of the worker that runs an item."""
        return next((place.url for place in self.places.values() if item in place.items), None)

    def encode(self) -> bytes:
        return compact_json.encode(
            {
                "v": VERSION,
                "epoch": self.turn.epoch,
                "round": self.turn.round,
                "generation": self.generation,
                "config": self.config_offset,
                "delay": self.delay_ms,
                "complete": self.complete,
                "members": {
                    member: {"url": place.url, **_work(place.items)}
                    for member, place in sorted(self.places.items())
                },
                "awaited": {
                    url: _work(item for item, of in self.awaited.items() if of == url)
                    for url in sorted(set(self.awaited.values()))
                },
            }
        )

    @staticmethod
    def decode(value: bytes | None) -> Assignment | None:
        """None for anything that is no assignment."""
        data = _object(value)
        try:
            assignment = Assignment(
                Turn(data["epoch"], data["round"]),
                data["generation"],
                data["config"],
                {
                    member: Place(place["url"], _items(place))
                    for member, place in data["members"].items()
                },
                {item: url for url, work in data["awaited"].items() for item in _items(work)},
                data["delay"],
                data.get("complete") is True,
            )
        except (KeyError, TypeError, ValueError, AttributeError):
            return None
        numbers = (
            *assignment.turn,
            assignment.generation,
            assignment.config_offset,
            assignment.delay_ms,
        )
        return assignment if all(isinstance(number, int) for number in numbers) else None


def hello_key(member: str) -> bytes:
    """Where a member's hellos stand; a null there says that it left."""
    return HELLO_PREFIX + member.encode()


def order(item: Item) -> tuple[bool, str, int]:
    """Connectors first, then tasks, by name and number."""
    if isinstance(item, ConnectorTaskId):
        return True, item.connector, item.task
    return False, item, -1


def _work(items: Iterable[Item]) -> dict[str, Any]:
    connectors: list[str] = []
    tasks: dict[str, list[int]] = {}
    for item in sorted(items, key=order):
        if isinstance(item, ConnectorTaskId):
            tasks.setdefault(item.connector, []).append(item.task)
        else:
            connectors.append(item)
    return {"connectors": connectors, "tasks": tasks}


def _items(work: Mapping[str, Any]) -> Items:
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
