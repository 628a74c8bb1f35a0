"""What travels on the channel topic between tasks and coordinator.

One JSON object per message, `{"v":1,"type":"report",...}`. The channel carries nothing that must survive:
losing, repeating or delaying any message costs a re-read, never a row. Positions are absolute in every
message, so that the newest one is enough.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from connectors.iceberg.protocol.positions import Epoch, TopicPartition, nest, unnest
from connectors.iceberg.table import StagedFile

MESSAGE_VERSION = 1


class Need(Enum):
    """Why a task asks for a table."""

    CREATE = "create"  # it knows nothing of the table: open it, create it if allowed
    EVOLVE = "evolve"  # rows do not fit the schema it was told


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


@dataclass(frozen=True, slots=True)
class TableOpened:
    """A table is open (or open again, or evolved). `needs` covers every partition."""

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


@dataclass(frozen=True, slots=True)
class Rewind:
    """Drop what is staged for these partitions and read again.

    With a nonce it is the answer to one report and concerns that attachment only.
    """

    epoch: Epoch
    nonce: str | None
    partitions: Mapping[TopicPartition, Attachment]


@dataclass(frozen=True, slots=True)
class StartCommit:
    """Close files and report, also when there is nothing to report."""

    epoch: Epoch
    cycle: int
    releases: Mapping[TopicPartition, Release]


@dataclass(frozen=True, slots=True)
class CommitComplete:
    epoch: Epoch
    cycle: int
    releases: Mapping[TopicPartition, Release]


TaskMessage = Attach | OpenTable | Report
CoordinatorMessage = EpochStarted | Attached | TableOpened | TableRefused | Rewind | StartCommit | CommitComplete
Message = TaskMessage | CoordinatorMessage


def encode(message: Message) -> bytes:
    """The bytes of a message on the channel topic."""
    name, write, _ = _CODECS[type(message)]
    return json.dumps({"v": MESSAGE_VERSION, "type": name, **write(message)}, separators=(",", ":")).encode()


def decode(data: bytes | None) -> Message | None:
    """None for what this version does not know: other types, newer versions, other people's bytes."""
    try:
        document = json.loads(data or b"")
        if document["v"] > MESSAGE_VERSION:
            return None
        reader = _READERS.get(document["type"])
        return reader(document) if reader else None
    except (ValueError, KeyError, TypeError, AttributeError, IndexError):
        return None


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
    }


def _read_releases(d: Any) -> tuple[Epoch, int, dict[TopicPartition, Release]]:
    return _read_epoch(d["epoch"]), d["cycle"], unnest(d["releases"], lambda pair: Release(*pair))


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
            "partitions": nest(m.partitions, _write_attachment),
        },
        lambda d: Attached(_read_epoch(d["epoch"]), d["nonce"], unnest(d["partitions"], _read_attachment)),
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
        lambda m: {"epoch": list(m.epoch), "table": m.table, "error": m.error, "skip": m.skip},
        lambda d: TableRefused(_read_epoch(d["epoch"]), d["table"], d["error"], bool(d["skip"])),
    ),
    Rewind: (
        "rewind",
        lambda m: {
            "epoch": list(m.epoch),
            "nonce": m.nonce,
            "partitions": nest(m.partitions, _write_attachment),
        },
        lambda d: Rewind(_read_epoch(d["epoch"]), d["nonce"], unnest(d["partitions"], _read_attachment)),
    ),
    StartCommit: ("start_commit", _write_releases, lambda d: StartCommit(*_read_releases(d))),
    CommitComplete: ("commit_complete", _write_releases, lambda d: CommitComplete(*_read_releases(d))),
}
_READERS: dict[str, _Reader] = {name: read for name, _, read in _CODECS.values()}
