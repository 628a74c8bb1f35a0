"""Records, which connectors, converters, and transformations process row by row."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, Self, TypeAlias, TypeVar

from connect_py.api.schema import Schema, Value

RawHeaders: TypeAlias = Sequence[tuple[str, bytes | None]]  # as stored in Kafka, in order
MutableHeaders: TypeAlias = list[tuple[str, bytes | None]]


class TopicPartition(NamedTuple):
    """A partition of a topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


@dataclass(frozen=True, slots=True)
class OffsetAndMetadata:
    """A consumer group's committed offset, which is the next offset to read, and its metadata."""

    offset: int
    metadata: str = ""


class TimestampType(Enum):
    """Origin of a record's timestamp. The values are the names that Java prints."""

    NO_TIMESTAMP_TYPE = "NoTimestampType"
    CREATE_TIME = "CreateTime"
    LOG_APPEND_TIME = "LogAppendTime"


class Header(NamedTuple):
    """A deserialized record header."""

    key: str
    value: Value
    schema: Schema | None = None


class Headers(Sequence[Header]):
    """An immutable ordered multimap. A name may occur several times."""

    __slots__ = ("_items",)

    def __init__(self, items: Iterable[Header] = ()) -> None:
        self._items = tuple(items)

    def add(self, key: str, value: Value, schema: Schema | None = None) -> Headers:
        """Return a copy with a header appended."""
        return Headers((*self._items, Header(key, value, schema)))

    def remove(self, key: str) -> Headers:
        """Return a copy without the headers that have this name."""
        return Headers(h for h in self._items if h.key != key)

    def all_with(self, key: str) -> list[Header]:
        """Return all headers with this name, in order."""
        return [h for h in self._items if h.key == key]

    def last_with(self, key: str) -> Header | None:
        """Return the last header with this name, or None."""
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
    """Position and raw bytes of a consumed record. Never changes.

    Committed offsets and dead-letter records are derived from it, even if transformations change
    the topic.
    """

    topic: str
    partition: int
    offset: int
    key: bytes | None = None
    value: bytes | None = None
    headers: RawHeaders = ()
    # offset of the original record if this is a replay
    shown_offset: int | None = None

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


NOWHERE = RecordOrigin("", 0, 0)  # origin of records that were not consumed


class RowMembers(Protocol):
    """Lazily creates members of a batch's records."""

    derived: list[Any]  # copies of the batch's records that still read members from this object

    def member(self, name: str, row: int) -> Any:
        """Return the key, value, or origin of a row."""


class _OfBatch:
    """Base class for records whose key, value, and origin can be created lazily.

    `_rows` creates them. It is None if all of them exist.
    """

    __slots__ = ("__weakref__", "_row", "_rows")

    _rows: RowMembers | None
    _row: int


@dataclass(frozen=True, slots=True)
class ConnectRecord(_OfBatch):
    """Common fields of sink and source records.

    A record with the value None is a tombstone, regardless of `value_schema`. A record with a value
    but without `value_schema` is schemaless.
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
        """Return a copy of this record with some fields replaced."""
        return dataclasses.replace(self, **changes)


@dataclass(frozen=True, slots=True)
class SinkRecord(ConnectRecord):
    """A record that is read from Kafka and written to a sink.

    Transformations may change `topic`, but never `origin`.
    """

    timestamp_type: TimestampType = TimestampType.CREATE_TIME
    origin: RecordOrigin = NOWHERE

    @property
    def kafka_offset(self) -> int:
        """Consumed offset. For a replayed record, the offset of the original record."""
        origin = self.origin
        return origin.offset if origin.shown_offset is None else origin.shown_offset

    def replace(self, **changes: Any) -> Self:
        if type(self) is not SinkRecord:
            return dataclasses.replace(self, **changes)
        record: Any = object.__new__(_UnfinishedSinkRecord)
        record.topic = self.topic
        record.partition = self.partition
        record.key_schema = self.key_schema
        record.value_schema = self.value_schema
        record.timestamp = self.timestamp
        record.headers = self.headers
        record.timestamp_type = self.timestamp_type
        record._rows = self._rows
        if record._rows is None:
            record.key = self.key
            record.value = self.value
            record.origin = self.origin
        else:
            record._row = self._row
            record._rows.derived.append(record)
            for name, read_existing in MADE_LATER.items():
                try:
                    setattr(record, name, read_existing(self))
                except AttributeError:  # not created yet; the copy creates it when it is first read
                    continue
        for name, value in changes.items():
            if name not in _SINK_MEMBERS:
                raise TypeError(f"SinkRecord has no field {name!r}")
            setattr(record, name, value)
        record.__class__ = SinkRecord
        unchanging: Self = record
        return unchanging

    if not TYPE_CHECKING:  # type checkers must report misspelled names

        def __getattr__(self, name: str) -> Any:
            """Create a member lazily. Called only for members that do not exist."""
            if name == "_rows":
                return None  # the dataclass constructor does not set it
            if name not in MADE_LATER or self._rows is None:
                raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")
            value = self._rows.member(name, self._row)
            object.__setattr__(self, name, value)
            return value


MADE_LATER: Mapping[str, Callable[[SinkRecord], Any]] = {
    name: getattr(SinkRecord, name).__get__ for name in ("key", "value", "origin")
}
"""Functions, keyed by member name, that read a record member without creating it. They raise
AttributeError if the member does not exist yet."""

_SINK_MEMBERS = frozenset(f.name for f in dataclasses.fields(SinkRecord))


class _UnfinishedSinkRecord(ConnectRecord):
    """A mutable sink record under construction, with the memory layout of `SinkRecord`.

    When it is complete, its class is changed to `SinkRecord`. The constructor of a frozen dataclass
    takes four times as long.
    """

    __slots__ = ("origin", "timestamp_type")
    __setattr__ = object.__setattr__
    # attribute assignment is fast only if both methods are replaced
    __delattr__ = object.__delattr__


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
    """Create a `SinkRecord` in a third of the time that its constructor takes."""
    record: Any = object.__new__(_UnfinishedSinkRecord)
    record.topic = topic
    record.partition = partition
    record.key_schema = key_schema
    record.key = key
    record.value_schema = value_schema
    record.value = value
    record.timestamp = timestamp
    record.headers = headers
    record.timestamp_type = timestamp_type
    record.origin = origin
    record._rows = None
    record.__class__ = SinkRecord
    unchanging: SinkRecord = record
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
    """Create a `SinkRecord` whose key, value, and origin are created lazily."""
    record: Any = object.__new__(_UnfinishedSinkRecord)
    record.topic = topic
    record.partition = partition
    record.key_schema = key_schema
    record.value_schema = value_schema
    record.timestamp = timestamp
    record.headers = headers
    record.timestamp_type = timestamp_type
    record._rows = rows
    record._row = row
    record.__class__ = SinkRecord
    unchanging: SinkRecord = record
    return unchanging


def make_whole(record: SinkRecord, twin: SinkRecord | None) -> None:
    """Create the missing members, or copy them from `twin`, an equal record. Release the batch."""
    for name, read_existing in MADE_LATER.items():
        try:
            read_existing(record)
        except AttributeError:
            object.__setattr__(record, name, getattr(record if twin is None else twin, name))
    object.__setattr__(record, "_rows", None)


@dataclass(frozen=True, slots=True)
class SourceRecord(ConnectRecord):
    """A record that is read from a source and written to Kafka.

    `source_partition` and `source_offset` contain only primitives (None, str, bool, int, float). If
    `partition` is None, the producer selects the partition.
    """

    source_partition: Mapping[str, Value] = dataclasses.field(default_factory=dict)
    source_offset: Mapping[str, Value] = dataclasses.field(default_factory=dict)


R = TypeVar("R", bound=ConnectRecord)
