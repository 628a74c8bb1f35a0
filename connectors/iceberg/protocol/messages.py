"""Messages between the tasks and the coordinator on the channel topic.

A message is one JSON object, such as `{"v":1,"type":"report",...}`. If a message is lost, repeated,
or delayed, records are read again, but no row is lost. The only exception is `Bounded`, which must
not be lost (rule 35 of the commit protocol). Positions in messages are absolute, so the newest
message is sufficient.

Brokers reject large records. Long messages are compressed with zlib. Messages with too many
partitions are split by partition into several messages. Every protocol rule applies to individual
partitions, so receivers do not need to detect the split.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from enum import Enum
from functools import partial
from operator import attrgetter
from typing import Any, TypeVar

from connectors.iceberg.protocol.positions import Bound, Epoch, TopicPartition, nest, unnest
from connectors.iceberg.table.table import StagedFile

PLAIN_VERSION = 1
MESSAGE_VERSION = 2  # version of messages whose attachments are encoded by column
COMPRESSED_BYTES = 10_000  # minimum size for compression; shorter messages remain readable
# size above which a record is split by partition; brokers accept 1 MB by default
RECORD_BYTES = 500_000
# approximate number of tables and files per message, which limits the size before compression
PART_CELLS = 5_000
# attachments are encoded by column if the number of tables times the number of partitions is at
# least this value
COLUMN_CELLS = 1_000
TEXT_BYTES = 1 << 28  # maximum decompressed size of a record; the sink never sends larger records

T = TypeVar("T")


class Need(Enum):
    """Reason why a task requests a table."""

    CREATE = "create"  # the task has not opened the table; open it, or create it if allowed
    EVOLVE = "evolve"  # rows do not fit the table schema that the task uses
    # an insert waits for the delete of the same key change, and another task may have read that
    # delete
    PAIR = "pair"


@dataclass(frozen=True, slots=True)
class TablePart:
    """Part of a reported range for one table. It exists even if all of its rows were dropped."""

    uuid: str  # UUID of the table for which the rows were staged
    # Rows below this offset were dropped, because the table did not need them. If the offset
    # changed while the range was being read, this is the highest value.
    filter: int
    first: int | None  # offset of the first row that passed the filter, or None if no row passed
    files: tuple[StagedFile, ...] = ()


@dataclass(frozen=True, slots=True)
class Range:
    """Offsets [start, next) of one partition, each of which was processed exactly once."""

    topic_id: str
    generation: int
    rewind: int  # number of the last rewind that the task applied to the partition
    # nonce of the task's `Attach` message; a rewind with this nonce applies only to this task
    nonce: str
    start: int
    next: int
    tables: Mapping[str, TablePart] = field(default_factory=dict)
    timestamp_ms: int | None = None  # latest record timestamp, or None if there is none


@dataclass(frozen=True, slots=True)
class TableNeed:
    """Offset from which an opened table needs rows from a partition."""

    uuid: str
    next: int


@dataclass(frozen=True, slots=True)
class Attachment:
    """Complete state of a partition, sent in response to an attach request and with a rewind."""

    topic_id: str
    generation: int
    position: int  # next offset to read, which is the end of the accepted ranges
    floor: int  # highest offset that the task may commit for the consumer group
    rewind: int
    needs: Mapping[str, TableNeed]
    bound: Bound | None = None  # None if the connector does not stop automatically


@dataclass(frozen=True, slots=True)
class Release:
    """The floor of a partition: the offset below which all opened tables are complete.

    A task uses the floor only if `rewind` is the number of the last rewind that it applied.
    """

    floor: int
    rewind: int


# --- task -> coordinator


@dataclass(frozen=True, slots=True)
class Attach:
    """Request for the state of assigned partitions. Every attempt has a new nonce."""

    task: str
    start: int  # start number from the task's context (`SinkTaskContext.start_number`)
    nonce: str
    # topic ID that the cluster returned when the task described the topic
    partitions: Mapping[TopicPartition, str]
    seen: Epoch | None = None  # highest epoch in the messages and metadata that the task has read


@dataclass(frozen=True, slots=True)
class OpenTable:
    """Request to open, create, or evolve a table.

    Usually, the task has paused a partition at a row that it cannot stage yet.
    """

    task: str
    epoch: Epoch
    table: str
    need: Need
    schema: str  # schema of the rows in JSON, opaque to the protocol


@dataclass(frozen=True, slots=True)
class Report:
    """Processed ranges with their closed files. A task sends one report per cycle."""

    task: str
    start: int
    epoch: Epoch
    cycle: int
    ranges: Mapping[TopicPartition, Range]


# --- coordinator -> tasks


@dataclass(frozen=True, slots=True)
class EpochStarted:
    """Start of an epoch. Tasks detach all of their partitions and request attachments again."""

    epoch: Epoch


@dataclass(frozen=True, slots=True)
class Attached:
    """Response to `Attach`."""

    epoch: Epoch
    nonce: str
    partitions: Mapping[TopicPartition, Attachment]
    # Encoded `LastCommits`. Every message that contains floors also contains this string. Tasks do
    # not interpret it. They store it in the offset metadata when they commit the floors.
    commits: str = ""


@dataclass(frozen=True, slots=True)
class TableOpened:
    """Response to `OpenTable`: a table was opened, reopened, or evolved.

    `needs` contains all partitions, or is empty if the message is sent during a commit to the
    table. If it is empty, the message only updates `answer`, and partitions that are waiting for
    the table keep waiting.
    """

    epoch: Epoch
    table: str
    uuid: str
    needs: Mapping[TopicPartition, int]
    answer: str  # opaque JSON: schema, partition spec, location, and FileIO properties


@dataclass(frozen=True, slots=True)
class TableRefused:
    """Response to `OpenTable`: the table cannot be opened or evolved.

    Tasks with rows for the table fail with `error`, or skip these rows.
    """

    epoch: Epoch
    table: str
    error: str
    skip: bool = False  # the configuration allows skipping the rows of this table
    # True if the table does not exist and cannot be created from the rows for which it was
    # requested; tasks then report these rows as bad records
    rows: bool = False


@dataclass(frozen=True, slots=True)
class Rewind:
    """Request to drop the staged rows from partitions and to read these rows again.

    A message with a nonce is the response to one report. It applies only to partitions that a task
    attached with this nonce.
    """

    epoch: Epoch
    nonce: str | None
    partitions: Mapping[TopicPartition, Attachment]
    commits: str = ""


@dataclass(frozen=True, slots=True)
class StartCommit:
    """Start of a cycle. Tasks close their files and report every partition, even without rows."""

    epoch: Epoch
    cycle: int
    releases: Mapping[TopicPartition, Release]
    commits: str = ""


@dataclass(frozen=True, slots=True)
class CommitComplete:
    """End of a cycle."""

    epoch: Epoch
    cycle: int
    releases: Mapping[TopicPartition, Release]
    commits: str = ""


# --- coordinator -> later coordinators


@dataclass(frozen=True, slots=True)
class Bounded:
    """Offsets at which this run of the connector stops reading (rule 35).

    The message is written before any offset is released. It is written again before retention
    removes it from the channel topic.
    """

    epoch: Epoch
    run: str
    topic_ids: Mapping[str, str]  # IDs of the topics in `ends`
    ends: Mapping[TopicPartition, int]


TaskMessage = Attach | OpenTable | Report
CoordinatorMessage = (
    EpochStarted | Attached | TableOpened | TableRefused | Rewind | StartCommit | CommitComplete
)
Message = TaskMessage | CoordinatorMessage | Bounded


def encode(message: Message) -> bytes:
    """Encode a message as one record of the channel topic."""
    document: dict[str, Any] = {"v": PLAIN_VERSION, "type": _NAMES[type(message)]}
    if isinstance(message, Attached | Rewind) and (columns := _columns(message.partitions)):
        bare = {partition: replace(a, needs={}) for partition, a in message.partitions.items()}
        message = replace(message, partitions=bare)
        document |= {"v": MESSAGE_VERSION, "needs": columns}
    document |= _write(message)
    text = json.dumps(document, separators=(",", ":")).encode()
    return text if len(text) < COMPRESSED_BYTES else zlib.compress(text)


def encode_all(message: Message) -> Iterator[bytes]:
    """Encode a message as one or more records, which together have the same effect."""
    for part in _parts(message, _weight(message) // PART_CELLS + 1):
        data = encode(part)
        halves = _parts(part, 2) if len(data) > RECORD_BYTES else [part]
        if len(halves) == 1:
            yield data
        else:
            for half in halves:
                yield from encode_all(half)


def _parts(message: Message, count: int) -> list[Message]:
    """Split a message by partition into about `count` messages."""
    name = next((name for name in _BY_PARTITION if hasattr(message, name)), None)
    if name is None or count == 1:
        return [message]
    items = sorted(getattr(message, name).items())
    length = max(1, -(-len(items) // count))
    parts = [dict(items[start : start + length]) for start in range(0, len(items), length)]
    cut: Callable[..., Message] = replace
    return [cut(message, **{name: part}) for part in parts] if len(parts) > 1 else [message]


def _weight(message: Message) -> int:
    """Estimate how many tables and files a message contains.

    Ten tables in an attachment count as one.
    """
    match message:
        case Report():
            parts = [part for r in message.ranges.values() for part in r.tables.values()]
            return len(message.ranges) + sum(1 + len(part.files) for part in parts)
        case Attached() | Rewind():
            return sum(1 + len(a.needs) // 10 for a in message.partitions.values())
    return 0


def decode(data: bytes | None) -> Message | None:
    """Decode a record, or return None for unknown types, newer versions, and foreign records."""
    try:
        document = json.loads(_text(data or b""))
        if document["v"] > MESSAGE_VERSION:
            return None
        message: Message = _read(_TYPES[document["type"]], document)
        if isinstance(message, Attached | Rewind) and "needs" in document:
            return replace(message, partitions=_with_needs(message.partitions, document["needs"]))
        return message
    except (ValueError, KeyError, TypeError, AttributeError, IndexError, zlib.error):
        return None


def _text(data: bytes) -> bytes:
    if data[:1] == b"{":
        return data
    unpacker = zlib.decompressobj()
    text = unpacker.decompress(data, TEXT_BYTES)
    if not unpacker.eof:
        raise ValueError("the record is truncated or too long")
    return text


def _columns(attachments: Mapping[TopicPartition, Attachment]) -> dict[str, list[Any]]:
    """Encode the needs of many partitions by table.

    Each value contains the UUID of the table and, for each partition, the difference between the
    position and the needed offset. Usually, all partitions have the same tables, and most of the
    differences are 0. The result is empty if there are only a few needs, or if the partitions have
    different tables.
    """
    tables = next(iter(attachments.values())).needs if attachments else {}
    ordered = [attachment for _, attachment in sorted(attachments.items())]
    if len(tables) * len(ordered) < COLUMN_CELLS or any(
        len(a.needs) != len(tables) for a in ordered
    ):
        return {}
    columns: dict[str, list[Any]] = {}
    for table, first in tables.items():
        needs = [a.needs.get(table) for a in ordered]
        if any(need is None or need.uuid != first.uuid for need in needs):
            return {}
        behind = [
            a.position - need.next
            for a, need in zip(ordered, needs, strict=True)
            if need is not None
        ]
        columns[table] = [first.uuid, behind if any(behind) else 0]
    return columns


def _with_needs(
    attachments: Mapping[TopicPartition, Attachment], columns: Mapping[str, Any]
) -> dict[TopicPartition, Attachment]:
    """Decode the result of `_columns`."""
    ordered = sorted(attachments)
    needs: dict[TopicPartition, dict[str, TableNeed]] = {partition: {} for partition in ordered}
    for table, (uuid, behind) in columns.items():
        for partition, lead in zip(ordered, behind or [0] * len(ordered), strict=True):
            needs[partition][table] = TableNeed(uuid, attachments[partition].position - lead)
    return {
        partition: replace(attachments[partition], needs=needs[partition]) for partition in ordered
    }


def _write(value: Any) -> dict[str, Any]:
    """Convert a message, or a part of a message, to JSON values."""
    return {
        m.name: _FORMS.get(m.name, _UNCHANGED)[0](getattr(value, m.name)) for m in fields(value)
    }


def _read(kind: type[T], document: Mapping[str, Any]) -> T:
    """Create a message from JSON values. Members that older versions do not write get defaults."""
    names = [m.name for m in fields(kind) if m.name in document]  # type: ignore[arg-type] # T is a data class
    members: Any = {name: _FORMS.get(name, _UNCHANGED)[1](document[name]) for name in names}
    return kind(**members)


def _read_epoch(pair: Any) -> Epoch:
    return Epoch(int(pair[0]), str(pair[1]))


def _write_range(r: Range) -> dict[str, Any]:
    return {
        "id": r.topic_id,
        "generation": r.generation,
        "rewind": r.rewind,
        "nonce": r.nonce,
        "range": [r.start, r.next],
        "tables": {table: _write(part) for table, part in r.tables.items()},
        "timestamp": r.timestamp_ms,
    }


def _read_range(d: Any) -> Range:
    start, following = d["range"]
    tables = {table: _read(TablePart, part) for table, part in d["tables"].items()}
    return Range(
        d["id"],
        d["generation"],
        d["rewind"],
        d["nonce"],
        start,
        following,
        tables,
        d.get("timestamp"),
    )


def _write_partition(value: str | Attachment) -> str | dict[str, Any]:
    if isinstance(value, str):  # topic ID
        return value
    needs = {table: [need.uuid, need.next] for table, need in value.needs.items()}
    bound = {} if value.bound is None else {"bound": list(value.bound)}
    return {
        "id": value.topic_id,
        "generation": value.generation,
        "position": value.position,
        "floor": value.floor,
        "rewind": value.rewind,
        "needs": needs,
        **bound,
    }


def _read_partition(d: Any) -> str | Attachment:
    if isinstance(d, str):
        return d
    needs = {table: TableNeed(uuid, following) for table, (uuid, following) in d["needs"].items()}
    bound = Bound(*d["bound"]) if "bound" in d else None
    return Attachment(
        d["id"], d["generation"], d["position"], d["floor"], d["rewind"], needs, bound
    )


_Form = tuple[Callable[[Any], Any], Callable[[Any], Any]]  # to JSON and from JSON


def _by_partition(write: Callable[[Any], Any], read: Callable[[Any], Any]) -> _Form:
    return partial(nest, each=write), partial(unnest, each=read)


_UNCHANGED: _Form = (lambda value: value, lambda value: value)
# how each member is encoded and decoded; a member name has the same meaning in every message
_FORMS: dict[str, _Form] = {
    "epoch": (list, _read_epoch),
    "seen": (lambda epoch: epoch and list(epoch), lambda pair: pair and _read_epoch(pair)),
    "need": (attrgetter("value"), Need),
    "files": (
        lambda files: [file.to_json() for file in files],
        lambda files: tuple(StagedFile.from_json(file) for file in files),
    ),
    "partitions": _by_partition(_write_partition, _read_partition),
    "ranges": _by_partition(_write_range, _read_range),
    "needs": _by_partition(int, int),
    "ends": _by_partition(int, int),
    "releases": _by_partition(
        lambda release: [release.floor, release.rewind], lambda pair: Release(*pair)
    ),
}
# members with partitions as keys; a message that has one of them can be split
_BY_PARTITION = ("partitions", "ranges", "needs", "ends", "releases")
_TYPES: dict[str, type[Message]] = {
    "attach": Attach,
    "open_table": OpenTable,
    "report": Report,
    "epoch_started": EpochStarted,
    "attached": Attached,
    "table_opened": TableOpened,
    "table_refused": TableRefused,
    "rewind": Rewind,
    "start_commit": StartCommit,
    "commit_complete": CommitComplete,
    "bounded": Bounded,
}
_NAMES = {kind: name for name, kind in _TYPES.items()}
