"""What a table knows about its own contents: the ledger, and how to find it.

The newest ancestor snapshot on the commit ref that carries our key is the ledger of the table. A
table property repeats it for the day a user expires our snapshots. Everything here is pure:
`TableView` in, `Lookup` out.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum
from functools import lru_cache
from typing import Any, NamedTuple

from connectors.iceberg.protocol.packed import pack, unpack
from connectors.iceberg.protocol.positions import Epoch, Position, TopicPartition
from connectors.iceberg.protocol.rules import PROTOCOL_RULES, ProtocolRules

# of the JSON form: every partition by name, for people; older versions of the sink read it
PLAIN_VERSION = 1
LEDGER_VERSION = 2  # some topics are packed; readers take this and every older one
# a topic with that many is packed: a ledger is repeated in every snapshot of the table
PACKED_PARTITIONS = 100
# of all topics; with more, `source_offsets` is too long to be repeated in every snapshot
REPEATED_PARTITIONS = 1000


def ledger_key(group: str) -> str:
    """Name of the summary key, and of the table property, for the connector's group."""
    return f"connect-py.ledger.{group}"


def group_of(property_key: str) -> str:
    """The connector's group in the name of a ledger: of `ledger_key`, or of a table that follows
    the connector's."""
    return property_key.partition("ledger.")[2]


def source_offsets_key(group: str) -> str:
    """Name of the summary key with the plain next offsets, for people and tools."""
    return f"kafka.connect.source-offsets.{group}"


class LedgerFormatError(ValueError):
    """The text under our key is not a ledger that this version can read."""


class LedgerTooNewError(LedgerFormatError):
    """A newer version wrote it."""


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """One partition: every row of [base, next) that is routed to the table is in, by this
    commit."""

    generation: int
    base: int  # the previous ledger's `next` within the generation
    next: int

    @property
    def position(self) -> Position:
        return Position(self.generation, self.next)


@dataclass(frozen=True, slots=True)
class TopicLedger:
    """All partitions of one topic, bound to the topic's id."""

    topic_id: str
    partitions: Mapping[int, LedgerEntry]


@dataclass(frozen=True, slots=True)
class Ledger:
    """The positions of all partitions after one commit to one table."""

    epoch: Epoch
    commit: str  # uuid of the commit; how an unknown outcome is resolved
    cycle: int
    table: str  # uuid of the table it was written to
    cluster: str  # id of the Kafka cluster the offsets belong to
    topics: Mapping[str, TopicLedger]

    def entry(self, partition: TopicPartition, topic_id: str | None = None) -> LedgerEntry | None:
        """The entry of a partition; None as well when it belongs to a topic with another id."""
        topic = self.topics.get(partition.topic)
        if topic is None or (topic_id is not None and topic.topic_id != topic_id):
            return None
        return topic.partitions.get(partition.partition)

    def positions(self) -> dict[TopicPartition, Position]:
        """Where each partition goes on."""
        return {
            TopicPartition(name, number): entry.position
            for name, topic in self.topics.items()
            for number, entry in topic.partitions.items()
        }

    def to_json(self) -> str:
        return _dump(self._document())

    def _document(self) -> dict[str, Any]:
        packed = any(len(topic.partitions) >= PACKED_PARTITIONS for topic in self.topics.values())
        return {
            "v": LEDGER_VERSION if packed else PLAIN_VERSION,
            "epoch": [self.epoch.number, self.epoch.nonce],
            "commit": self.commit,
            "cycle": self.cycle,
            "table": self.table,
            "cluster": self.cluster,
            "topics": {
                name: {"id": topic.topic_id, **_write_entries(topic.partitions)}
                for name, topic in sorted(self.topics.items())
            },
        }

    @staticmethod
    # each look at a table brings the text of the last one again, with thousands of partitions
    @lru_cache(maxsize=32)
    def from_json(text: str) -> Ledger:
        """Raises: LedgerFormatError."""
        with _reading("a ledger"):
            return _read_ledger(_load(text))

    @property
    def repeats_offsets(self) -> bool:
        """Whether `source_offsets` is short enough to be repeated in every snapshot."""
        return sum(len(topic.partitions) for topic in self.topics.values()) <= REPEATED_PARTITIONS

    def source_offsets(self) -> str:
        """Next offsets for people and tools: `{"orders":{"0":123}}`."""
        return _dump(
            {
                name: {str(p): e.next for p, e in sorted(topic.partitions.items())}
                for name, topic in sorted(self.topics.items())
            }
        )


class _Stamp(NamedTuple):
    """Who wrote a ledger: all that matters of those that a newer one has replaced."""

    epoch: Epoch
    commit: str
    table: str


@lru_cache(maxsize=256)
def _parse_stamp(text: str) -> _Stamp:
    with _reading("a ledger"):
        return _read_stamp(_load(text))


@contextmanager
def _reading(what: str) -> Iterator[None]:
    """Errors of the block are those of a text that is not of our form."""
    try:
        yield
    except LedgerFormatError:
        raise
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise LedgerFormatError(f"not {what}: {error!r}") from error


def _read_stamp(document: Mapping[str, Any]) -> _Stamp:
    version = document["v"]
    if version > LEDGER_VERSION:
        raise LedgerTooNewError(
            f"ledger has format {version}, this version reads up to {LEDGER_VERSION}: a newer "
            f"connector wrote it"
        )
    number, nonce = document["epoch"]
    return _Stamp(Epoch(int(number), str(nonce)), document["commit"], document["table"])


def _read_ledger(document: Mapping[str, Any]) -> Ledger:
    epoch, commit, table = _read_stamp(document)
    topics = {
        name: TopicLedger(t["id"], _read_entries(t)) for name, t in document["topics"].items()
    }
    return Ledger(epoch, commit, int(document["cycle"]), table, document["cluster"], topics)


@dataclass(frozen=True, slots=True)
class LedgerProperty:
    """The table property: the ledger, the snapshot that holds it, and where the table began.

    Written in the same transaction as the snapshot that it names.
    """

    ledger: Ledger
    snapshot: int
    opened: Mapping[TopicPartition, Position]  # where each partition began in this table

    def to_json(self) -> str:
        return self.template(self.ledger, self.opened, str(self.snapshot))

    @staticmethod
    def template(ledger: Ledger, opened: Mapping[TopicPartition, Position], snapshot: str) -> str:
        """The text with something in place of the snapshot's id, which is known only while
        committing."""
        document = {**ledger._document(), "opened": _write_opened(opened)}
        if any(isinstance(topic, str) for topic in document["opened"].values()):
            document["v"] = LEDGER_VERSION
        return f'{_dump(document)[:-1]},"snapshot":{snapshot}}}'

    @staticmethod
    @lru_cache(maxsize=16)
    def from_json(text: str) -> LedgerProperty:
        """Raises: LedgerFormatError."""
        with _reading("a ledger property"):
            document = _load(text)
            opened = _read_opened(document.get("opened", {}))
            return LedgerProperty(_read_ledger(document), int(document["snapshot"]), opened)


@dataclass(frozen=True, slots=True)
class SnapshotView:
    """One ancestor on the commit ref."""

    id: int
    ledger: str | None  # the text under our key in its summary


@dataclass(frozen=True, slots=True)
class TableView:
    """What the catalog says about a table right now, reduced to what the protocol asks (rule 3).

    `ancestors` runs newest first along the commit ref and may stop after the first one with our
    key. `complete` is False when the walk ended at a snapshot whose parent is gone (expired).
    `present` holds the ids of the snapshots in the metadata, ancestors or not, that are not older
    than the last one of the walk: an older one may have been an ancestor, which a branch or a tag
    kept when what followed it was expired. `replaced` says that the head holds data, and that none
    of its ancestors is one of the snapshot that the property names; `branch_missing`, that the
    commit ref is a branch that is not there, so that main's snapshots are shown, where a new one
    would begin.
    """

    uuid: str
    ancestors: Sequence[SnapshotView]
    complete: bool
    present: frozenset[int]
    property: str | None
    replaced: bool = False
    branch_missing: bool = False


class Standing(Enum):
    """How far the table's own word can be trusted (rule 3)."""

    FOUND = "found"
    EXPIRED = "expired"  # another program expired our snapshots; the property speaks
    ROLLED_BACK = "rolled back"  # by its owner: refill from the ledger that is left
    # by other data that is not ours, perhaps made of ours: what it holds is not known
    REPLACED = "replaced"
    # with our commits: which of their rows came to main in another way is not known
    BRANCH_LOST = "branch lost"
    LOST = "lost"  # rolled back to a snapshot whose ledger was expired: what it holds is not known
    NONE = "none"  # never written by this connector, or dropped and re-created


@dataclass(frozen=True, slots=True)
class TableVersion:
    """What a commit compares and swaps (rule 16): the whole of it, inside every retry.

    Commits of others without our key do not change it. The snapshot that the property names is in
    it, because a roll-back to the snapshot that a late request was prepared on would pass
    otherwise.
    """

    uuid: str
    ledger_snapshot: int | None
    property_snapshot: int | None


@dataclass(frozen=True, slots=True)
class Lookup:
    """The ledger of a table, and what may be concluded from where it was found."""

    standing: Standing
    version: TableVersion
    ledger: Ledger | None
    opened: Mapping[TopicPartition, Position] = field(default_factory=dict)
    # of the topics that `opened` speaks of
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    highest_epoch: Epoch | None = None  # over ledger and property, whatever table they are bound to
    commits: frozenset[str] = frozenset()  # ids of our commits among the ancestors of the view


def look_up(view: TableView, rules: ProtocolRules = PROTOCOL_RULES) -> Lookup:
    """Find the ledger of a table (rules 1 and 3).

    Raises:
        LedgerFormatError: A newer version wrote it, or a user edited it.
    """
    prop = LedgerProperty.from_json(view.property) if view.property is not None else None
    highest = prop.ledger.epoch if prop else None
    if prop and not rules.is_bound_to_table(prop.ledger.table, view.uuid):
        prop = None  # copied from another table, or left by one of the same name
    found: tuple[int, Ledger] | None = None
    commits = set()
    for snapshot in view.ancestors:
        if snapshot.ledger is None:
            continue
        stamp = _parse_stamp(snapshot.ledger)
        if not rules.is_bound_to_table(stamp.table, view.uuid):
            continue
        commits.add(stamp.commit)
        highest = max(highest, stamp.epoch) if highest else stamp.epoch
        if found is None:
            found = (snapshot.id, Ledger.from_json(snapshot.ledger))
    version = TableVersion(view.uuid, found[0] if found else None, prop.snapshot if prop else None)
    opened = prop.opened if prop else {}
    topic_ids = {name: topic.topic_id for name, topic in prop.ledger.topics.items()} if prop else {}
    standing, ledger_now = _judge(view, found, rules.compared_property(prop), rules)
    return Lookup(standing, version, ledger_now, opened, topic_ids, highest, frozenset(commits))


def _judge(
    view: TableView,
    found: tuple[int, Ledger] | None,
    prop: LedgerProperty | None,
    rules: ProtocolRules,
) -> tuple[Standing, Ledger | None]:
    if found is not None:
        rolled_back = prop is not None and prop.snapshot != found[0]
        return (Standing.ROLLED_BACK if rolled_back else Standing.FOUND), found[1]
    if prop is None:
        return Standing.NONE, None
    if view.branch_missing and view.ancestors:
        return Standing.BRANCH_LOST, None
    if rules.is_replaced(is_complete=view.complete, has_other_rows=view.replaced):
        return Standing.REPLACED, None
    if view.complete:
        return Standing.ROLLED_BACK, None  # to before our first commit, or replaced by an empty one
    if prop.snapshot in view.present:
        return Standing.LOST, None
    return Standing.EXPIRED, prop.ledger


def table_version(view: TableView) -> TableVersion:
    """What a commit on this view compares with; see `TableVersion`."""
    return look_up(view).version


def _write_entries(entries: Mapping[int, LedgerEntry]) -> dict[str, Any]:
    """`{"p": {"0": [generation, base, next]}}`, or packed: numbers, generations, bases, and next
    less base."""
    if len(entries) < PACKED_PARTITIONS:
        return {"p": _write_rows({p: (e.generation, e.base, e.next) for p, e in entries.items()})}
    return {
        "packed": _write_rows(
            {p: (e.generation, e.base, e.next - e.base) for p, e in entries.items()}
        )
    }


def _read_entries(topic: Mapping[str, Any]) -> dict[int, LedgerEntry]:
    if "packed" not in topic:
        return {p: LedgerEntry(*row) for p, row in _read_rows(topic["p"], 3).items()}
    return {
        p: LedgerEntry(g, base, base + n)
        for p, (g, base, n) in _read_rows(topic["packed"], 3).items()
    }


def _write_opened(opened: Mapping[TopicPartition, Position]) -> dict[str, Any]:
    """By topic `{"0": [generation, next]}`, or packed: numbers, generations, next offsets."""
    by_topic: dict[str, dict[int, Position]] = {}
    for (topic, partition), position in sorted(opened.items()):
        by_topic.setdefault(topic, {})[partition] = position
    return {topic: _write_rows(positions) for topic, positions in by_topic.items()}


def _read_opened(written: Mapping[str, Any]) -> dict[TopicPartition, Position]:
    return {
        TopicPartition(topic, partition): Position(*row)
        for topic, rows in written.items()
        for partition, row in _read_rows(rows, 2).items()
    }


def _write_rows(rows: Mapping[int, Sequence[int]]) -> dict[str, list[int]] | str:
    """Numbers by partition of one topic; packed by columns if they are many."""
    ordered = sorted(rows)
    if len(ordered) < PACKED_PARTITIONS:
        return {str(p): list(rows[p]) for p in ordered}
    return pack(ordered, *zip(*(rows[p] for p in ordered), strict=True))


def _read_rows(written: Mapping[str, Any] | str, count: int) -> dict[int, list[int]]:
    """The way back from `_write_rows`; so many numbers for each partition."""
    if isinstance(written, str):
        return {p: list(row) for p, *row in zip(*unpack(written, count + 1), strict=True)}
    return {int(p): [int(n) for n in row] for p, row in written.items()}


def _dump(document: Mapping[str, Any]) -> str:
    return json.dumps(document, separators=(",", ":"))


def _load(text: str) -> Mapping[str, Any]:
    try:
        document = json.loads(text)
    except ValueError as error:
        raise LedgerFormatError(f"not a ledger: {error}") from error
    if not isinstance(document, dict):
        raise LedgerFormatError(f"not a ledger: a JSON {type(document).__name__}")
    return document
