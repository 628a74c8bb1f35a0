"""Records, row by row: what connectors, converters and transformations of the reference form
see."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, Self, TypeAlias, TypeVar

from connect_py.api.schema import Schema, Value

RawHeaders: TypeAlias = Sequence[tuple[str, bytes | None]]  # as Kafka carries them, in order
MutableHeaders: TypeAlias = list[tuple[str, bytes | None]]


class TopicPartition(NamedTuple):
    """A partition of a topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


@dataclass(frozen=True, slots=True)
class OffsetAndMetadata:
    """A group offset: the next offset to read, and the text that rides with it."""

    offset: int
    metadata: str = ""


class TimestampType(Enum):
    """Who set a record's timestamp; the values are how Java prints them."""

    NO_TIMESTAMP_TYPE = "NoTimestampType"
    CREATE_TIME = "CreateTime"
    LOG_APPEND_TIME = "LogAppendTime"


class Header(NamedTuple):
    """One header after the header converter."""

    key: str
    value: Value
    schema: Schema | None = None


class Headers(Sequence[Header]):
    """An ordered multimap that does not change: a name may repeat, and `add` returns a longer
    one."""

    __slots__ = ("_items",)

    def __init__(self, items: Iterable[Header] = ()) -> None:
        self._items = tuple(items)

    def add(self, key: str, value: Value, schema: Schema | None = None) -> Headers:
        """Return headers with one more at the end."""
        return Headers((*self._items, Header(key, value, schema)))

    def remove(self, key: str) -> Headers:
        """Return headers without any of that name."""
        return Headers(h for h in self._items if h.key != key)

    def all_with(self, key: str) -> list[Header]:
        """Return the headers of that name, in order."""
        return [h for h in self._items if h.key == key]

    def last_with(self, key: str) -> Header | None:
        """Return the last header of that name, or None."""
        return next((h for h in reversed(self._items) if h.key == key), None)

    def __len__(self) -> int:
        return len(self._items)

    def __getitem__(self, index: Any) -> Any:
        return self._items[index]

    def __iter__(self) -> Iterator[Header]:
        return iter(self._items)

    def __eq__(self, other: object) -> bool:
        return self._items == other._items if isinstance(other, Headers) else NotImplemented

    def __hash__(self) -> int:
        return hash(tuple(h.key for h in self._items))

    def __repr__(self) -> str:
        return f"Headers({list(self._items)!r})"


NO_HEADERS = Headers()


class RecordOrigin(NamedTuple):
    """Where Kafka holds one record, with its bytes. Nothing ever rewrites it.

    Offsets are committed and dead letters written from here, whatever transformations did to the
    topic.
    """

    topic: str
    partition: int
    offset: int
    key: bytes | None = None
    value: bytes | None = None
    headers: RawHeaders = ()
    # of a dead letter that is tried again: the offset at its first place
    shown_offset: int | None = None

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


NOWHERE = RecordOrigin("", 0, 0)  # of a record that was made, not consumed


class RowMembers(Protocol):
    """What makes the members of a batch's records when they are first read."""

    derived: list[Any]  # records that were made of its records, and know it as they do

    def member(self, name: str, row: int) -> Any:
        """The key, value or origin of a row."""


class _OfBatch:
    """Where a record is from whose key, value and origin are made when first read; `_rows` None:
    all is made."""

    __slots__ = ("__weakref__", "_row", "_rows")

    _rows: RowMembers | None
    _row: int


@dataclass(frozen=True, slots=True)
class ConnectRecord(_OfBatch):
    """What sink and source records share.

    A null value is a tombstone whatever `value_schema` is; `value_schema` None with a value is
    schemaless.
    """

    topic: str
    partition: int | None
    key_schema: Schema | None
    key: Value
    value_schema: Schema | None
    value: Value
    timestamp: int | None = None  # ms since the epoch
    headers: Headers = NO_HEADERS

    def replace(self, **changes: Any) -> Self:
        """Return this record with some members changed."""
        return dataclasses.replace(self, **changes)


@dataclass(frozen=True, slots=True)
class SinkRecord(ConnectRecord):
    """A record on its way from Kafka to a sink. `topic` may have been rerouted; `origin` never
    is."""

    timestamp_type: TimestampType = TimestampType.CREATE_TIME
    origin: RecordOrigin = NOWHERE

    @property
    def kafka_offset(self) -> int:
        """The offset as consumed; of a dead letter that is tried again, as it was consumed
        first."""
        origin = self.origin
        return origin.offset if origin.shown_offset is None else origin.shown_offset

    def replace(self, **changes: Any) -> Self:
        if type(self) is not SinkRecord:
            return dataclasses.replace(self, **changes)
        made: Any = object.__new__(_UnfinishedSinkRecord)
        made.topic = self.topic
        made.partition = self.partition
        made.key_schema = self.key_schema
        made.value_schema = self.value_schema
        made.timestamp = self.timestamp
        made.headers = self.headers
        made.timestamp_type = self.timestamp_type
        made._rows = self._rows
        if made._rows is None:
            made.key = self.key
            made.value = self.value
            made.origin = self.origin
        else:
            made._row = self._row
            made._rows.derived.append(made)
            for name, made_already in MADE_LATER.items():
                try:
                    setattr(made, name, made_already(self))
                except AttributeError:  # not read yet, and the copy does not need it
                    continue
        for name, value in changes.items():
            if name not in _SINK_MEMBERS:
                raise TypeError(f"a SinkRecord has no {name}")
            setattr(made, name, value)
        made.__class__ = SinkRecord
        unchanging: Self = made
        return unchanging

    if not TYPE_CHECKING:  # it would let misspelt names pass

        def __getattr__(self, name: str) -> Any:
            """Make what was not made yet; called for members only that are not there."""
            if name == "_rows":
                return None  # the constructor of a dataclass leaves it out
            if name not in MADE_LATER or self._rows is None:
                raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")
            value = self._rows.member(name, self._row)
            object.__setattr__(self, name, value)
            return value


MADE_LATER: Mapping[str, Callable[[SinkRecord], Any]] = {
    name: getattr(SinkRecord, name).__get__ for name in ("key", "value", "origin")
}
"""What reads a member of a record of a batch without making it; AttributeError: it is not made."""

_SINK_MEMBERS = frozenset(f.name for f in dataclasses.fields(SinkRecord))


class _UnfinishedSinkRecord(ConnectRecord):
    """A sink record whose members are being set: the constructor of a frozen dataclass takes four
    times as long.

    It has the layout of a `SinkRecord` and becomes one.
    """

    __slots__ = ("origin", "timestamp_type")
    __setattr__ = object.__setattr__
    __delattr__ = object.__delattr__  # both, or neither is quick


def sink_record(
    topic: str,
    partition: int | None,
    key_schema: Schema | None,
    key: Value,
    value_schema: Schema | None,
    value: Value,
    timestamp: int | None,
    headers: Headers,
    timestamp_type: TimestampType,
    origin: RecordOrigin,
) -> SinkRecord:
    """Make a `SinkRecord` as its constructor does, in a third of the time."""
    made: Any = object.__new__(_UnfinishedSinkRecord)
    made.topic = topic
    made.partition = partition
    made.key_schema = key_schema
    made.key = key
    made.value_schema = value_schema
    made.value = value
    made.timestamp = timestamp
    made.headers = headers
    made.timestamp_type = timestamp_type
    made.origin = origin
    made._rows = None
    made.__class__ = SinkRecord
    unchanging: SinkRecord = made
    return unchanging


def record_of_row(
    topic: str,
    partition: int | None,
    key_schema: Schema | None,
    value_schema: Schema | None,
    timestamp: int | None,
    headers: Headers,
    timestamp_type: TimestampType,
    rows: RowMembers,
    row: int,
) -> SinkRecord:
    """Make a `SinkRecord` whose key, value and origin are made when first read."""
    made: Any = object.__new__(_UnfinishedSinkRecord)
    made.topic = topic
    made.partition = partition
    made.key_schema = key_schema
    made.value_schema = value_schema
    made.timestamp = timestamp
    made.headers = headers
    made.timestamp_type = timestamp_type
    made._rows = rows
    made._row = row
    made.__class__ = SinkRecord
    unchanging: SinkRecord = made
    return unchanging


def make_whole(record: SinkRecord, twin: SinkRecord | None) -> None:
    """Make the members not read yet, or take them from a record that has the same, and let go of
    the batch."""
    for name, made_already in MADE_LATER.items():
        try:
            made_already(record)
        except AttributeError:
            object.__setattr__(record, name, getattr(record if twin is None else twin, name))
    object.__setattr__(record, "_rows", None)


@dataclass(frozen=True, slots=True)
class SourceRecord(ConnectRecord):
    """A record on its way from a source to Kafka.

    `source_partition` and `source_offset` hold primitives only (None, str, bool, int, float).
    `partition` None lets the producer choose.
    """

    source_partition: Mapping[str, Value] = dataclasses.field(default_factory=dict)
    source_offset: Mapping[str, Value] = dataclasses.field(default_factory=dict)


R = TypeVar("R", bound=ConnectRecord)
