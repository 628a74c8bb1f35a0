"""`Ledger`: the committed positions of a table, with their encoding and evaluation.

The current ledger is in the summary of the newest ancestor of the commit ref that has the
connector's key. A table property repeats the ledger, because users may expire the snapshot.
`look_up` evaluates a `TableView` and returns a `Lookup`. No function performs I/O.
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

# format with all partitions in readable form, which older versions of the sink can also read
PLAIN_VERSION = 1
LEDGER_VERSION = 2  # format with packed topics; readers also accept older versions
# a topic with at least this many partitions is packed, because every snapshot has a ledger
PACKED_PARTITIONS = 100
# with more partitions, `source_offsets` is too long to be repeated in every snapshot
REPEATED_PARTITIONS = 1000


def ledger_key(group: str) -> str:
    """Return the summary key and table property name for a connector group's ledger."""
    return f"connect-py.ledger.{group}"


def group_of(property_key: str) -> str:
    """Return the connector group from a ledger key, which may be the key for an aggregate."""
    return property_key.partition("ledger.")[2]


def source_offsets_key(group: str) -> str:
    """Return the summary key for the next offsets in readable form."""
    return f"kafka.connect.source-offsets.{group}"


class LedgerFormatError(ValueError):
    """Raised if a value is not a ledger that this version can read."""


class LedgerTooNewError(LedgerFormatError):
    """Raised if a ledger was written by a newer version of the sink."""


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """Offsets [base, next) in one partition. The ledger's commit applied their rows."""

    generation: int
    base: int  # `next` of the previous ledger in the same generation
    next: int

    @property
    def position(self) -> Position:
        """Position after this commit."""
        return Position(self.generation, self.next)


@dataclass(frozen=True, slots=True)
class TopicLedger:
    """Entries for all partitions of one topic. They are valid only for this topic ID."""

    topic_id: str
    partitions: Mapping[int, LedgerEntry]


@dataclass(frozen=True, slots=True)
class Ledger:
    """Positions of all partitions after one commit to one table."""

    epoch: Epoch
    commit: str  # UUID of the commit, used to resolve an unknown outcome
    cycle: int
    table: str  # UUID of the table
    cluster: str  # ID of the Kafka cluster that contains the topics
    topics: Mapping[str, TopicLedger]

    def entry(self, partition: TopicPartition, topic_id: str | None = None) -> LedgerEntry | None:
        """Return the entry of a partition, or None if the ledger has none for this topic ID."""
        topic = self.topics.get(partition.topic)
        if topic is None or (topic_id is not None and topic.topic_id != topic_id):
            return None
        return topic.partitions.get(partition.partition)

    def positions(self) -> dict[TopicPartition, Position]:
        """Return the positions after this commit by partition."""
        return {
            TopicPartition(name, number): entry.position
            for name, topic in self.topics.items()
            for number, entry in topic.partitions.items()
        }

    def to_json(self) -> str:
        """Encode the ledger for the summary of a snapshot."""
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
    # cached because each view of a table contains its last ledger, which may have thousands of
    # partitions
    @lru_cache(maxsize=32)
    def from_json(text: str) -> Ledger:
        """Decode a ledger.

        Raises:
            LedgerFormatError: The string is not a ledger that this version can read.
        """
        with _format_errors("ledger"):
            return _read_ledger(_load(text))

    @property
    def repeats_offsets(self) -> bool:
        """True if `source_offsets` is short enough to be repeated in every snapshot."""
        return sum(len(topic.partitions) for topic in self.topics.values()) <= REPEATED_PARTITIONS

    def source_offsets(self) -> str:
        """Encode the next offsets in readable form, such as `{"orders":{"0":123}}`."""
        return _dump(
            {
                name: {str(p): e.next for p, e in sorted(topic.partitions.items())}
                for name, topic in sorted(self.topics.items())
            }
        )


class _Writer(NamedTuple):
    """Origin of a ledger. No other part of a superseded ledger is needed."""

    epoch: Epoch
    commit: str
    table: str


@lru_cache(maxsize=256)
def _parse_writer(text: str) -> _Writer:
    with _format_errors("ledger"):
        return _read_writer(_load(text))


@contextmanager
def _format_errors(kind: str) -> Iterator[None]:
    """Convert decoding errors to `LedgerFormatError`."""
    try:
        yield
    except LedgerFormatError:
        raise
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise LedgerFormatError(f"invalid {kind}: {error!r}") from error


def _read_writer(document: Mapping[str, Any]) -> _Writer:
    version = document["v"]
    if version > LEDGER_VERSION:
        raise LedgerTooNewError(
            f"unsupported ledger format {version}: a newer version of the connector wrote the "
            f"ledger; this version supports formats up to {LEDGER_VERSION}"
        )
    number, nonce = document["epoch"]
    return _Writer(Epoch(int(number), str(nonce)), document["commit"], document["table"])


def _read_ledger(document: Mapping[str, Any]) -> Ledger:
    epoch, commit, table = _read_writer(document)
    topics = {
        name: TopicLedger(t["id"], _read_entries(t)) for name, t in document["topics"].items()
    }
    return Ledger(epoch, commit, int(document["cycle"]), table, document["cluster"], topics)


@dataclass(frozen=True, slots=True)
class LedgerProperty:
    """Table property with the ledger, its snapshot, and the start positions of the table.

    The property is written in the same transaction as the snapshot to which it refers.
    """

    ledger: Ledger
    snapshot: int
    opened: Mapping[TopicPartition, Position]  # start positions of the table

    def to_json(self) -> str:
        """Encode the property."""
        return self.template(self.ledger, self.opened, str(self.snapshot))

    @staticmethod
    def template(ledger: Ledger, opened: Mapping[TopicPartition, Position], snapshot: str) -> str:
        """Encode the property with a placeholder for the snapshot ID, which the commit assigns."""
        document = {**ledger._document(), "opened": _write_opened(opened)}
        if any(isinstance(topic, str) for topic in document["opened"].values()):
            document["v"] = LEDGER_VERSION
        return f'{_dump(document)[:-1]},"snapshot":{snapshot}}}'

    @staticmethod
    @lru_cache(maxsize=16)
    def from_json(text: str) -> LedgerProperty:
        """Decode the property.

        Raises:
            LedgerFormatError: The string is not a property that this version can read.
        """
        with _format_errors("ledger property"):
            document = _load(text)
            opened = _read_opened(document.get("opened", {}))
            return LedgerProperty(_read_ledger(document), int(document["snapshot"]), opened)


@dataclass(frozen=True, slots=True)
class SnapshotView:
    """One ancestor of the commit ref."""

    id: int
    ledger: str | None  # value of the connector's key in the summary


@dataclass(frozen=True, slots=True)
class TableView:
    """Table metadata that determines the ledger (rule 3 of the commit protocol)."""

    uuid: str
    # ancestors of the commit ref, newest first; may end after the first ancestor with a ledger
    ancestors: Sequence[SnapshotView]
    complete: bool  # False if the parent of the last ancestor has expired
    # IDs of all snapshots that are not older than the last of `ancestors`. Older snapshots are
    # excluded, because a branch or tag may have retained older ancestors when their successors
    # expired.
    present: frozenset[int]
    property: str | None
    # True if the head has data and no common ancestor with the snapshot in the property
    replaced: bool = False
    # True if the commit ref is a missing branch; `ancestors` then contains the ancestors of main
    branch_missing: bool = False


class Standing(Enum):
    """State of a table's ledger (rule 3)."""

    FOUND = "found"
    EXPIRED = "expired"  # the snapshots with a ledger have expired; the property is valid
    # a user rolled the table back; it is refilled from the ledger that is now the newest
    ROLLED_BACK = "rolled back"
    # other data, which may include committed rows, replaced the table; the contents are unknown
    REPLACED = "replaced"
    BRANCH_LOST = "branch lost"  # main may contain some of the branch's commits
    # the table was rolled back to a snapshot whose ledger has expired; the contents are unknown
    LOST = "lost"
    NONE = "none"  # the connector never wrote to the table, or the table was re-created


@dataclass(frozen=True, slots=True)
class TableVersion:
    """Version of a table. Every commit attempt compares all attributes (rule 16).

    Commits by other writers do not change the version. Without the snapshot in the property, a
    late commit could succeed after a rollback to the ledger snapshot that it expects.
    """

    uuid: str
    ledger_snapshot: int | None
    property_snapshot: int | None


@dataclass(frozen=True, slots=True)
class Lookup:
    """Ledger of a table, and the ledger's state according to the table's history."""

    standing: Standing
    version: TableVersion
    ledger: Ledger | None
    opened: Mapping[TopicPartition, Position] = field(default_factory=dict)
    # IDs of the topics in `opened`
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    # highest epoch in all ledgers and the property, even if they are from another table
    highest_epoch: Epoch | None = None
    commits: frozenset[str] = frozenset()  # IDs of the connector's commits among the ancestors


def look_up(view: TableView, rules: ProtocolRules = PROTOCOL_RULES) -> Lookup:
    """Find the ledger of a table, and determine its state (rules 1 and 3).

    Raises:
        LedgerFormatError: A newer version wrote the ledger, or a user edited it.
    """
    prop = LedgerProperty.from_json(view.property) if view.property is not None else None
    highest = prop.ledger.epoch if prop else None
    if prop and not rules.is_bound_to_table(prop.ledger.table, view.uuid):
        prop = None  # copied from another table, or inherited from a predecessor
    newest: tuple[int, Ledger] | None = None  # snapshot ID and ledger
    commits = set()
    for snapshot in view.ancestors:
        if snapshot.ledger is None:
            continue
        writer = _parse_writer(snapshot.ledger)
        if not rules.is_bound_to_table(writer.table, view.uuid):
            continue
        commits.add(writer.commit)
        highest = max(highest, writer.epoch) if highest else writer.epoch
        if newest is None:
            newest = (snapshot.id, Ledger.from_json(snapshot.ledger))
    version = TableVersion(
        view.uuid, newest[0] if newest else None, prop.snapshot if prop else None
    )
    opened = prop.opened if prop else {}
    topic_ids = {name: topic.topic_id for name, topic in prop.ledger.topics.items()} if prop else {}
    standing, ledger = _evaluate(view, newest, rules.compared_property(prop), rules)
    return Lookup(standing, version, ledger, opened, topic_ids, highest, frozenset(commits))


def _evaluate(
    view: TableView,
    newest: tuple[int, Ledger] | None,
    prop: LedgerProperty | None,
    rules: ProtocolRules,
) -> tuple[Standing, Ledger | None]:
    """Return the state of the ledger and the ledger that applies.

    `newest` is the newest ledger in the history, preceded by its snapshot ID.
    """
    if newest is not None:
        snapshot, ledger = newest
        is_rolled_back = prop is not None and prop.snapshot != snapshot
        return (Standing.ROLLED_BACK if is_rolled_back else Standing.FOUND), ledger
    if prop is None:
        return Standing.NONE, None
    if view.branch_missing and view.ancestors:
        return Standing.BRANCH_LOST, None
    if rules.is_replaced(is_complete=view.complete, has_other_rows=view.replaced):
        return Standing.REPLACED, None
    if view.complete:
        # rolled back to a snapshot before the first commit, or replaced with an empty table
        return Standing.ROLLED_BACK, None
    if prop.snapshot in view.present:
        return Standing.LOST, None
    return Standing.EXPIRED, prop.ledger


def table_version(view: TableView) -> TableVersion:
    """Return the version that a commit based on a view expects."""
    return look_up(view).version


def _write_entries(entries: Mapping[int, LedgerEntry]) -> dict[str, Any]:
    """Encode entries as `{"p": {"0": [generation, base, next]}}`, or in packed form.

    The packed columns are partition numbers, generations, bases, and differences
    between next and base.
    """
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
    """Encode start positions by topic as `{"0": [generation, next]}`, or in packed form.

    The packed columns are partition numbers, generations, and next offsets.
    """
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
    """Encode the integers of a topic's partitions, in packed form if there are many partitions."""
    ordered = sorted(rows)
    if len(ordered) < PACKED_PARTITIONS:
        return {str(p): list(rows[p]) for p in ordered}
    return pack(ordered, *zip(*(rows[p] for p in ordered), strict=True))


def _read_rows(written: Mapping[str, Any] | str, count: int) -> dict[int, list[int]]:
    """Decode the result of `_write_rows`. `count` is the number of integers per partition."""
    if isinstance(written, str):
        return {p: list(row) for p, *row in zip(*unpack(written, count + 1), strict=True)}
    return {int(p): [int(n) for n in row] for p, row in written.items()}


def _dump(document: Mapping[str, Any]) -> str:
    return json.dumps(document, separators=(",", ":"))


def _load(text: str) -> Mapping[str, Any]:
    try:
        document = json.loads(text)
    except ValueError as error:
        raise LedgerFormatError(f"invalid ledger: {error}") from error
    if not isinstance(document, dict):
        raise LedgerFormatError(
            f"invalid ledger: expected a JSON object, got {type(document).__name__}"
        )
    return document
