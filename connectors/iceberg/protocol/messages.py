"""What travels on the channel topic between tasks and coordinator.

One JSON object per message, `{"v":1,"type":"report",...}`. The channel carries nothing that must
survive, but for the bounds of a connector that stops by itself (rule 35): losing, repeating or
delaying any other message costs a re-read, never a row. Positions are absolute in every message, so
that the newest one is enough.

Brokers refuse large records. A long text is compressed by zlib, and what speaks of too many
partitions becomes several messages that speak of a part of them each: every rule is about single
partitions, so who reads them cannot tell the parts from messages that were sent apart.
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

from connectors.iceberg.protocol.bounds import Bound
from connectors.iceberg.protocol.positions import Epoch, TopicPartition, nest, unnest
from connectors.iceberg.table.table import StagedFile

PLAIN_VERSION = 1
MESSAGE_VERSION = 2  # attachments as columns
COMPRESSED_BYTES = 10_000  # texts from here on are compressed; shorter ones stay readable
# of one record, if its partitions can be parted; brokers take 1 MB by default
RECORD_BYTES = 500_000
# tables and files of one message, so that no text grows without bounds before it is compressed
PART_CELLS = 5_000
COLUMN_CELLS = 1_000  # tables times partitions from which on attachments are written as columns
TEXT_BYTES = 1 << 28  # no sink sends more in one record

T = TypeVar("T")


class Need(Enum):
    """Why a task asks for a table."""

    CREATE = "create"  # it knows nothing of the table: open it, create it if allowed
    EVOLVE = "evolve"  # rows do not fit the schema it knows
    PAIR = "pair"  # it waits for a delete that another task may have read


@dataclass(frozen=True, slots=True)
class TablePart:
    """What one reported range holds for one table, also when every row of it was filtered away."""

    uuid: str  # of the table that the rows were staged for
    filter: int  # rows below were dropped: the highest filter position in force during the range
    first: int | None  # offset of the first row that survived; None: no row did
    files: tuple[StagedFile, ...] = ()


@dataclass(frozen=True, slots=True)
class Range:
    """All offsets [start, next) of one partition, handled once."""

    topic_id: str
    generation: int
    rewind: int  # rewind number of the partition that the task had
    nonce: str  # of the attachment; lets the answer reach this sender alone
    start: int
    next: int
    tables: Mapping[str, TablePart] = field(default_factory=dict)
    timestamp_ms: int | None = None  # of the latest record in the range; None: empty or unknown


@dataclass(frozen=True, slots=True)
class TableNeed:
    """From where on an opened table still needs rows of a partition."""

    uuid: str
    next: int


@dataclass(frozen=True, slots=True)
class Attachment:
    """Where a partition stands, in full: the answer to an attach, and the content of a rewind."""

    topic_id: str
    generation: int
    position: int  # read from here: the end of what was accepted
    floor: int  # may go to the group, and nothing above it
    rewind: int
    needs: Mapping[str, TableNeed]
    bound: Bound | None = None  # None: the connector does not stop by itself


@dataclass(frozen=True, slots=True)
class Release:
    """All opened tables are complete below `floor`. Counts only with the current rewind number."""

    floor: int
    rewind: int


# --- task -> coordinator


@dataclass(frozen=True, slots=True)
class Attach:
    """A task was given partitions and asks where they stand. One nonce per attempt."""

    task: str
    start: int  # the worker's count of starts that the task belongs to
    nonce: str
    partitions: Mapping[TopicPartition, str]  # topic id as the task sees it
    seen: Epoch | None = None  # highest epoch that the task knows of


@dataclass(frozen=True, slots=True)
class OpenTable:
    """A task holds a partition at a row of a table that it cannot stage yet."""

    task: str
    epoch: Epoch
    table: str
    need: Need
    schema: str  # JSON text, opaque: what the rows look like


@dataclass(frozen=True, slots=True)
class Report:
    """Closed files and handled ranges; one message per task and cycle."""

    task: str
    start: int
    epoch: Epoch
    cycle: int
    ranges: Mapping[TopicPartition, Range]


# --- coordinator -> tasks


@dataclass(frozen=True, slots=True)
class EpochStarted:
    """A coordinator lives. Tasks of lower epochs detach everything and ask again."""

    epoch: Epoch


@dataclass(frozen=True, slots=True)
class Attached:
    epoch: Epoch
    nonce: str
    partitions: Mapping[TopicPartition, Attachment]
    # of the marks that carry these floors into the group; opaque to tasks. So beside all floors
    commits: str = ""


@dataclass(frozen=True, slots=True)
class TableOpened:
    """A table is open (or open again, or evolved). `needs` covers every partition.

    Without any, in the middle of a cycle, only the answer is newer: partitions that wait for the
    table go on waiting.
    """

    epoch: Epoch
    table: str
    uuid: str
    needs: Mapping[TopicPartition, int]
    answer: str  # JSON text, opaque: schema, partition spec, location, file-IO settings


@dataclass(frozen=True, slots=True)
class TableRefused:
    """The table cannot be opened or evolved; tasks that hold rows of it fail with `error`, or skip
    them."""

    epoch: Epoch
    table: str
    error: str
    skip: bool = False  # the user chose to go on without this table's rows
    # only because such rows cannot create it: they are bad records, others may create it
    rows: bool = False


@dataclass(frozen=True, slots=True)
class Rewind:
    """Drop what is staged for these partitions and read again.

    With a nonce it is the answer to one report and concerns that attachment only.
    """

    epoch: Epoch
    nonce: str | None
    partitions: Mapping[TopicPartition, Attachment]
    commits: str = ""


@dataclass(frozen=True, slots=True)
class StartCommit:
    """Close files and report, also when there is nothing to report."""

    epoch: Epoch
    cycle: int
    releases: Mapping[TopicPartition, Release]
    commits: str = ""


@dataclass(frozen=True, slots=True)
class CommitComplete:
    epoch: Epoch
    cycle: int
    releases: Mapping[TopicPartition, Release]
    commits: str = ""


# --- coordinator -> coordinators after it


@dataclass(frozen=True, slots=True)
class Bounded:
    """Where this run of the connector stops: said before anything is released, and repeated before
    it expires."""

    epoch: Epoch
    run: str
    topic_ids: Mapping[str, str]  # for which the ends were resolved
    ends: Mapping[TopicPartition, int]


TaskMessage = Attach | OpenTable | Report
CoordinatorMessage = (
    EpochStarted | Attached | TableOpened | TableRefused | Rewind | StartCommit | CommitComplete
)
Message = TaskMessage | CoordinatorMessage | Bounded


def encode(message: Message) -> bytes:
    """The bytes of a message on the channel topic, in one record."""
    document: dict[str, Any] = {"v": PLAIN_VERSION, "type": _NAMES[type(message)]}
    if isinstance(message, Attached | Rewind) and (columns := _columns(message.partitions)):
        bare = {partition: replace(a, needs={}) for partition, a in message.partitions.items()}
        message = replace(message, partitions=bare)
        document |= {"v": MESSAGE_VERSION, "needs": columns}
    document |= _write(message)
    text = json.dumps(document, separators=(",", ":")).encode()
    return text if len(text) < COMPRESSED_BYTES else zlib.compress(text)


def encode_all(message: Message) -> Iterator[bytes]:
    """The same in as many records as it takes; all of them mean what the one does."""
    for part in _parts(message, _weight(message) // PART_CELLS + 1):
        data = encode(part)
        halves = _parts(part, 2) if len(data) > RECORD_BYTES else [part]
        if len(halves) == 1:
            yield data
        else:
            for half in halves:
                yield from encode_all(half)


def _parts(message: Message, count: int) -> list[Message]:
    """The message cut into about so many, by partitions."""
    name = next((name for name in _BY_PARTITION if hasattr(message, name)), None)
    if name is None or count == 1:
        return [message]
    items = sorted(getattr(message, name).items())
    length = max(1, -(-len(items) // count))
    parts = [dict(items[start : start + length]) for start in range(0, len(items), length)]
    cut: Callable[..., Message] = replace
    return [cut(message, **{name: part}) for part in parts] if len(parts) > 1 else [message]


def _weight(message: Message) -> int:
    """How much a message says, in tables and files; what is written as columns is a tenth."""
    match message:
        case Report():
            parts = [part for r in message.ranges.values() for part in r.tables.values()]
            return len(message.ranges) + sum(1 + len(part.files) for part in parts)
        case Attached() | Rewind():
            return sum(1 + len(a.needs) // 10 for a in message.partitions.values())
    return 0


def decode(data: bytes | None) -> Message | None:
    """None for what this version does not know: other types, newer versions, other people's
    bytes."""
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
        raise ValueError("cut off, or longer than anything of ours")
    return text


def _columns(attachments: Mapping[TopicPartition, Attachment]) -> dict[str, list[Any]]:
    """Needs of many partitions by table: its uuid, and per partition how far it is behind the
    position.

    All partitions know of the same tables, and most tables need what comes next and nothing before.
    Empty: they are few, or not so.
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
    """The way back from `_columns`."""
    ordered = sorted(attachments)
    needs: dict[TopicPartition, dict[str, TableNeed]] = {partition: {} for partition in ordered}
    for table, (uuid, behind) in columns.items():
        for partition, lead in zip(ordered, behind or [0] * len(ordered), strict=True):
            needs[partition][table] = TableNeed(uuid, attachments[partition].position - lead)
    return {
        partition: replace(attachments[partition], needs=needs[partition]) for partition in ordered
    }


def _write(value: Any) -> dict[str, Any]:
    """The members of a message, or of a part of one, as JSON has them."""
    return {m.name: _FORMS.get(m.name, _AS_IT_IS)[0](getattr(value, m.name)) for m in fields(value)}


def _read(kind: type[T], document: Mapping[str, Any]) -> T:
    """The way back from `_write`. A member that an older version does not write has its default."""
    known = [m.name for m in fields(kind) if m.name in document]  # type: ignore[arg-type] # T is a data class
    members: Any = {name: _FORMS.get(name, _AS_IT_IS)[1](document[name]) for name in known}
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
    if isinstance(value, str):  # the topic's id
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


_Form = tuple[Callable[[Any], Any], Callable[[Any], Any]]  # to JSON, and back


def _by_partition(write: Callable[[Any], Any], read: Callable[[Any], Any]) -> _Form:
    return partial(nest, each=write), partial(unnest, each=read)


_AS_IT_IS: _Form = (lambda value: value, lambda value: value)
_FORMS: dict[
    str, _Form
] = {  # how a member of this name is written; it means the same in every message
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
# members that a message may be parted by
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
