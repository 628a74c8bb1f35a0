"""What travels on the channel topic between tasks and coordinator.

One JSON object per message, `{"v":1,"type":"report",...}`. The channel carries nothing that must survive:
losing, repeating or delaying any message costs a re-read, never a row. Positions are absolute in every
message, so that the newest one is enough.

Brokers refuse large records. A long text is compressed by zlib, and what speaks of too many partitions becomes several
messages that speak of a part of them each: every rule is about single partitions, so who reads them cannot tell the
parts from messages that were sent apart.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

from connectors.iceberg.protocol.positions import Epoch, TopicPartition, nest, unnest
from connectors.iceberg.table import StagedFile

PLAIN_VERSION = 1
MESSAGE_VERSION = 2  # attachments as columns
COMPRESSED_BYTES = 10_000  # texts from here on are compressed; shorter ones stay readable
RECORD_BYTES = 500_000  # of one record, if its partitions can be parted; brokers take 1 MB by default
PART_CELLS = 5_000  # tables and files of one message, so that no text grows without bounds before it is compressed
COLUMN_CELLS = 1_000  # tables times partitions from which on attachments are written as columns
TEXT_BYTES = 1 << 28  # no sink sends more in one record


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
    commits: str = (
        ""  # of the marks that carry these floors into the group; opaque to tasks. So in all that tell of floors
    )


@dataclass(frozen=True, slots=True)
class TableOpened:
    """A table is open (or open again, or evolved). `needs` covers every partition.

    Without any, in the middle of a cycle, only the answer is newer: partitions that wait for the table go on waiting.
    """

    epoch: Epoch
    table: str
    uuid: str
    needs: Mapping[TopicPartition, int]
    answer: str  # JSON text, opaque: schema, partition spec, location, file-IO settings


@dataclass(frozen=True, slots=True)
class TableRefused:
    """The table cannot be opened or evolved; tasks that hold rows of it fail with `error`, or skip them."""

    epoch: Epoch
    table: str
    error: str
    skip: bool = False  # the user chose to go on without this table's rows
    rows: bool = False  # only because such rows cannot create it: they are bad records, others may create it


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


TaskMessage = Attach | OpenTable | Report
CoordinatorMessage = EpochStarted | Attached | TableOpened | TableRefused | Rewind | StartCommit | CommitComplete
Message = TaskMessage | CoordinatorMessage


def encode(message: Message) -> bytes:
    """The bytes of a message on the channel topic, in one record."""
    name, write, _ = _CODECS[type(message)]
    text = json.dumps({"v": PLAIN_VERSION, "type": name, **write(message)}, separators=(",", ":")).encode()
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
    name = _BY_PARTITION.get(type(message))
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
    """None for what this version does not know: other types, newer versions, other people's bytes."""
    try:
        document = json.loads(_text(data or b""))
        if document["v"] > MESSAGE_VERSION:
            return None
        reader = _READERS.get(document["type"])
        return reader(document) if reader else None
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


def _write_epoch(epoch: Epoch | None) -> list[Any] | None:
    return list(epoch) if epoch else None


def _read_epoch(pair: Any) -> Epoch:
    return Epoch(int(pair[0]), str(pair[1]))


def _write_part(part: TablePart) -> dict[str, Any]:
    return {
        "uuid": part.uuid,
        "filter": part.filter,
        "first": part.first,
        "files": [file.to_json() for file in part.files],
    }


def _read_part(d: Any) -> TablePart:
    return TablePart(
        d["uuid"],
        d["filter"],
        d["first"],
        tuple(StagedFile.from_json(file) for file in d["files"]),
    )


def _write_range(r: Range) -> dict[str, Any]:
    return {
        "id": r.topic_id,
        "generation": r.generation,
        "rewind": r.rewind,
        "nonce": r.nonce,
        "range": [r.start, r.next],
        "tables": {table: _write_part(part) for table, part in r.tables.items()},
        "timestamp": r.timestamp_ms,
    }


def _read_range(d: Any) -> Range:
    start, following = d["range"]
    tables = {table: _read_part(part) for table, part in d["tables"].items()}
    return Range(d["id"], d["generation"], d["rewind"], d["nonce"], start, following, tables, d.get("timestamp"))


def _write_attachments(attachments: Mapping[TopicPartition, Attachment]) -> dict[str, Any]:
    """By partition; if many, with the needs by table: its uuid, and per partition how far it is behind the position.

    All partitions know of the same tables, and most tables need what comes next and nothing before.
    """
    tables = next(iter(attachments.values())).needs if attachments else {}
    if len(tables) * len(attachments) < COLUMN_CELLS:
        return {"partitions": nest(attachments, _write_attachment)}
    ordered = sorted(attachments.items())
    columns: dict[str, list[Any]] = {}
    for table, first in tables.items():
        needs = [a.needs.get(table) for _, a in ordered]
        if any(need is None or need.uuid != first.uuid for need in needs):
            return {"partitions": nest(attachments, _write_attachment)}
        behind = [a.position - need.next for (_, a), need in zip(ordered, needs, strict=True) if need is not None]
        columns[table] = [first.uuid, behind if any(behind) else 0]
    if any(len(a.needs) != len(tables) for _, a in ordered):
        return {"partitions": nest(attachments, _write_attachment)}
    without = {partition: replace(a, needs={}) for partition, a in ordered}
    return {"v": MESSAGE_VERSION, "partitions": nest(without, _write_attachment), "needs": columns}


def _read_attachments(d: Any) -> dict[TopicPartition, Attachment]:
    attachments = unnest(d["partitions"], _read_attachment)
    if "needs" not in d:
        return attachments
    ordered = sorted(attachments)
    needs: dict[TopicPartition, dict[str, TableNeed]] = {partition: {} for partition in ordered}
    for table, (uuid, behind) in d["needs"].items():
        for partition, lead in zip(ordered, behind or [0] * len(ordered), strict=True):
            needs[partition][table] = TableNeed(uuid, attachments[partition].position - lead)
    return {partition: replace(attachments[partition], needs=needs[partition]) for partition in ordered}


def _write_attachment(a: Attachment) -> dict[str, Any]:
    return {
        "id": a.topic_id,
        "generation": a.generation,
        "position": a.position,
        "floor": a.floor,
        "rewind": a.rewind,
        "needs": {table: [need.uuid, need.next] for table, need in a.needs.items()},
    }


def _read_attachment(d: Any) -> Attachment:
    needs = {table: TableNeed(uuid, following) for table, (uuid, following) in d["needs"].items()}
    return Attachment(d["id"], d["generation"], d["position"], d["floor"], d["rewind"], needs)


def _write_releases(message: StartCommit | CommitComplete) -> dict[str, Any]:
    return {
        "epoch": list(message.epoch),
        "cycle": message.cycle,
        "releases": nest(message.releases, lambda r: [r.floor, r.rewind]),
        "commits": message.commits,
    }


def _read_releases(d: Any) -> tuple[Epoch, int, dict[TopicPartition, Release], str]:
    releases = unnest(d["releases"], lambda pair: Release(*pair))
    return _read_epoch(d["epoch"]), d["cycle"], releases, d.get("commits", "")


_Writer = Callable[[Any], dict[str, Any]]
_Reader = Callable[[Any], Message]

_CODECS: dict[type, tuple[str, _Writer, _Reader]] = {
    Attach: (
        "attach",
        lambda m: {
            "task": m.task,
            "start": m.start,
            "nonce": m.nonce,
            "partitions": nest(m.partitions, str),
            "seen": _write_epoch(m.seen),
        },
        lambda d: Attach(
            d["task"],
            d["start"],
            d["nonce"],
            unnest(d["partitions"], str),
            _read_epoch(d["seen"]) if d["seen"] else None,
        ),
    ),
    OpenTable: (
        "open_table",
        lambda m: {
            "task": m.task,
            "epoch": list(m.epoch),
            "table": m.table,
            "need": m.need.value,
            "schema": m.schema,
        },
        lambda d: OpenTable(d["task"], _read_epoch(d["epoch"]), d["table"], Need(d["need"]), d["schema"]),
    ),
    Report: (
        "report",
        lambda m: {
            "task": m.task,
            "start": m.start,
            "epoch": list(m.epoch),
            "cycle": m.cycle,
            "ranges": nest(m.ranges, _write_range),
        },
        lambda d: Report(d["task"], d["start"], _read_epoch(d["epoch"]), d["cycle"], unnest(d["ranges"], _read_range)),
    ),
    EpochStarted: (
        "epoch_started",
        lambda m: {"epoch": list(m.epoch)},
        lambda d: EpochStarted(_read_epoch(d["epoch"])),
    ),
    Attached: (
        "attached",
        lambda m: {
            "epoch": list(m.epoch),
            "nonce": m.nonce,
            "commits": m.commits,
            **_write_attachments(m.partitions),
        },
        lambda d: Attached(_read_epoch(d["epoch"]), d["nonce"], _read_attachments(d), d.get("commits", "")),
    ),
    TableOpened: (
        "table_opened",
        lambda m: {
            "epoch": list(m.epoch),
            "table": m.table,
            "uuid": m.uuid,
            "needs": nest(m.needs, int),
            "answer": m.answer,
        },
        lambda d: TableOpened(_read_epoch(d["epoch"]), d["table"], d["uuid"], unnest(d["needs"], int), d["answer"]),
    ),
    TableRefused: (
        "table_refused",
        lambda m: {"epoch": list(m.epoch), "table": m.table, "error": m.error, "skip": m.skip, "rows": m.rows},
        lambda d: TableRefused(
            _read_epoch(d["epoch"]), d["table"], d["error"], bool(d["skip"]), bool(d.get("rows", False))
        ),
    ),
    Rewind: (
        "rewind",
        lambda m: {
            "epoch": list(m.epoch),
            "nonce": m.nonce,
            "commits": m.commits,
            **_write_attachments(m.partitions),
        },
        lambda d: Rewind(_read_epoch(d["epoch"]), d["nonce"], _read_attachments(d), d.get("commits", "")),
    ),
    StartCommit: ("start_commit", _write_releases, lambda d: StartCommit(*_read_releases(d))),
    CommitComplete: ("commit_complete", _write_releases, lambda d: CommitComplete(*_read_releases(d))),
}
_READERS: dict[str, _Reader] = {name: read for name, _, read in _CODECS.values()}
_BY_PARTITION: dict[type, str] = {  # the member that a message may be parted by
    Attach: "partitions",
    Report: "ranges",
    Attached: "partitions",
    TableOpened: "needs",
    Rewind: "partitions",
    StartCommit: "releases",
    CommitComplete: "releases",
}
