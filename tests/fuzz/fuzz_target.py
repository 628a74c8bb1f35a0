"""A fuzz target: a converter, with cases that are derived from random numbers alone; a seed is
enough to reproduce them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from random import Random
from typing import Any, ClassVar, Final, TypeAlias
from unittest.mock import patch

import fuzz_bytes
from fixtures.schema_registry_stub import Stub, directly

from connect_py.api.converter import Converter
from connect_py.api.record import RawHeaders
from connect_py.converters.registry.registry_converter import RegistryConverter
from connect_py.converters.registry.schema_registry import SchemaRegistry

Poll: TypeAlias = list[tuple[bytes | None, RawHeaders]]

POLL_SIZES: Final = [1, 2, 5, 16, 17, 40, 120, 300]
HOSTILITIES: Final = [0.0, 0.0, 0.01, 0.05, 0.3, 1.0]  # how many messages of a poll are damaged
TOMBSTONES: Final = [0.0, 0.0, 0.02, 0.3]


@dataclass(frozen=True)
class Case:
    """Polls of one converter, each with its schemas; `what` is shown with a finding."""

    configs: Mapping[str, str]
    polls: Sequence[Poll]
    schemas: Mapping[int, Mapping[str, Any]] = field(default_factory=dict)
    what: str = ""


class FuzzTarget(ABC):
    """A converter, and how its cases are made."""

    name: ClassVar[str]
    rows: ClassVar[int] = 400  # of a case, about

    @abstractmethod
    def case(self, random: Random, number: int) -> Case:
        """Make a case; equal random numbers make equal cases."""

    @abstractmethod
    def converter(self, case: Case) -> Converter:
        """Make the converter of a case. ConfigError: its configuration is refused, which is
        fine."""


class RegistryTarget(FuzzTarget):
    """A converter with a schema registry, which answers without a network."""

    made: ClassVar[type[RegistryConverter]]

    def __init__(self) -> None:
        self.stub = Stub({}, has_guids=True)
        self._registry = directly(self._first(), self.stub, grace_seconds=0.0)._registry

    def _first(self) -> RegistryConverter:
        first = self.made()
        first.configure({"schema.registry.url": "http://nowhere"})
        return first

    def converter(self, case: Case) -> Converter:
        """Creating a client takes a tenth of a second: all cases share one, and no two cases share
        an ID.
        """
        self.stub.schemas.clear()
        self.stub.calls.clear()
        self.stub.schemas.update(case.schemas)
        self._registry._refused.clear()  # a damaged id may be the next case's
        with self._registry_of_all():
            converter = self.made()
            converter.configure({"schema.registry.url": "http://nowhere", **case.configs})
        return converter

    @contextmanager
    def _registry_of_all(self) -> Iterator[None]:
        def same(configs: Mapping[str, str]) -> SchemaRegistry:
            return self._registry

        with patch("connect_py.converters.registry.registry_converter.SchemaRegistry", same):
            yield


def polls_of(random: Random, rows: int, good: Sequence[Sequence[bytes]]) -> list[Poll]:
    """Polls of about so many rows: each takes messages of one schema, or of all; some are damaged,
    some are missing."""
    polls: list[Poll] = []
    left = rows
    everything = [message for messages in good for message in messages]
    while left > 0:
        size = min(random.choice(POLL_SIZES), left)
        left -= size
        hostility, tombstones = random.choice(HOSTILITIES), random.choice(TOMBSTONES)
        own = random.choice(good) if random.random() < 0.8 else everything
        poll: Poll = []
        for _ in range(size):
            if random.random() < tombstones:
                poll.append((None, ()))
                continue
            message = random.choice(own)
            if random.random() < hostility:
                message = fuzz_bytes.damaged(random, message, everything)
            poll.append((message, ()))
        polls.append(poll)
    return polls


def with_headers(random: Random, polls: list[Poll], prefix: int) -> list[Poll]:
    """Return the same polls; in some, a header contains the schema reference of each message, or
    something else.
    """
    made: list[Poll] = []
    for poll in polls:
        draw = random.random()
        if draw < 0.75:
            made.append(poll)
            continue
        hostile = random.random() < 0.3
        moved: Poll = []
        for message, _ in poll:
            if message is None or random.random() < 0.1:
                moved.append(
                    (message, random.choice([(), (("h", b"1"),), (("__value_schema_id", None),)]))
                )
                continue
            head, body = message[:prefix], message[prefix:]
            if hostile and random.random() < 0.2:
                head = fuzz_bytes.damaged(random, head, [b"\1" * 17, b""])
            moved.append((body, (("h", None), ("__value_schema_id", head))))
        made.append(moved)
    return made


def options(random: Random, names: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """A converter's configuration: most options are left alone."""
    return {name: random.choice(values) for name, values in names.items() if random.random() < 0.2}


BOOLEANS: Final = ("true", "false")
