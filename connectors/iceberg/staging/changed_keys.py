"""`ChangedKeys`: tracks key changes among the rows of a table.

Debezium emits a change of a primary key as a pair of events: a delete of the row with the old key
and an insert of the row with the new key. Each event has a header with the other event's key. The
pair ID is a hash of both keys and, if known, the position of the change in the source.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from operator import attrgetter
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from connect_py.api.record import Headers, TopicPartition
from connectors.iceberg.conversion.columns import tombstones
from connectors.iceberg.conversion.types import ORDER
from connectors.iceberg.staging.features import ChangeBatch, StagingFeature
from connectors.iceberg.staging.staged_changes import HALF, OFFSET, PAIR, PLACED, Half
from connectors.iceberg.staging.table_converter import Findings

_KEYS = "keys"  # JSON array of the old and the new key
PAIRS: Final = pa.schema(
    [(OFFSET, pa.int64()), (PAIR, pa.string()), (HALF, pa.int32()), (_KEYS, pa.string())]
)
_FINDING = "pairs"  # name of the finding that contains key changes, with the schema `PAIRS`
_NEW_KEY = "__debezium.newkey"  # header of the delete event, which precedes the insert event
_OLD_KEY = "__debezium.oldkey"  # header of the insert event
_KEY_HEADERS = frozenset({_OLD_KEY, _NEW_KEY})
_header_key = attrgetter("key")
_PAIR_DIGITS = 20
_MAX_READ_PAIRS = 100_000  # maximum number of cached pair IDs per partition
_SOURCE = "source"  # field of a change event that contains its position in the source


class ChangedKeys(StagingFeature):
    """Tracks the deletes and inserts of key changes in one table. Used by the task thread only."""

    def __init__(self) -> None:
        # For each pair ID, the number of staged deletes minus the number of staged inserts. Pairs
        # for which only the delete has been committed are listed in the table description.
        self._read_pairs: dict[TopicPartition, Counter[str]] = {}
        # offset and keys of the last delete in each partition
        self._last_deletes: dict[TopicPartition, tuple[int, str]] = {}
        # partitions and offsets of the inserts that are staged without a delete
        self._alone: set[tuple[TopicPartition, int]] = set()
        self._staged: dict[TopicPartition, list[pa.Table]] = {}  # key changes in the open cycle

    def amend(self, changes: ChangeBatch) -> None:
        """Collect the deletes and inserts of key changes."""
        headers = changes.batch.headers
        if headers is None:
            return
        halves = [
            row
            for row, each in enumerate(headers)
            if not _KEY_HEADERS.isdisjoint(map(_header_key, each))
        ]
        if halves:
            changes.findings[_FINDING] = self._pairs(changes, halves, headers)

    def _pairs(
        self, changes: ChangeBatch, rows: Iterable[int], headers: Sequence[Headers]
    ) -> dict[TopicPartition, pa.Table]:
        layout, origin, received = changes.layout, changes.batch.origin, changes.received
        keys = [changes.columns[layout.schema.get_field_index(key)] for key in layout.keys]
        source = received.member(_SOURCE) if received.is_struct() else None
        positions = None if source is None else source.data
        if ORDER in changes.extra:
            _, positions = changes.extra[ORDER]
        tombstone, last_deletes = tombstones(received), dict(self._last_deletes)
        halves: dict[TopicPartition, list[tuple[int, str, int, str]]] = {}
        for row in rows:
            old, new = headers[row].last_with(_OLD_KEY), headers[row].last_with(_NEW_KEY)
            other_key = changes.table.key_of(old or new)
            if other_key is None:
                continue
            key = [column[row].as_py() for column in keys]
            partition = TopicPartition(origin.topic, origin.partitions[row].as_py())
            offset: int = origin.offsets[row].as_py()
            if old is None:
                half, both_keys = Half.DELETE, json.dumps((key, other_key), default=str)
            else:
                is_alone = (partition, offset) in self._alone
                half = Half.INSERT_ALONE if is_alone else Half.INSERT
                both_keys = json.dumps((other_key, key), default=str)
            repeats = last_deletes.get(partition) == (offset - 1, both_keys)
            if repeats and tombstone is not None and tombstone[row].as_py():
                continue  # this is the tombstone that follows a delete
            if half is Half.DELETE:
                last_deletes[partition] = offset, both_keys
            position = None if positions is None else positions[row].as_py()
            pair = _pair_id(both_keys, position)
            halves.setdefault(partition, []).append((offset, pair, int(half), both_keys))
        return {
            partition: pa.Table.from_pylist(
                [dict(zip(PAIRS.names, half, strict=True)) for half in its_halves], PAIRS
            )
            for partition, its_halves in halves.items()
        }

    def buffered(self, findings: Findings) -> None:
        for partition, pairs in pairs_in(findings).items():
            self._staged.setdefault(partition, []).append(pairs)
            if pairs.column(HALF)[-1].as_py() == Half.DELETE:
                last = pairs.column(OFFSET)[-1].as_py(), pairs.column(_KEYS)[-1].as_py()
                self._last_deletes[partition] = last
            read = self._read_pairs.setdefault(partition, Counter())
            read.update(pairs_of(pairs, Half.DELETE))
            read.subtract(pairs_of(pairs, Half.INSERT))
            for pair in [*islice(read, max(0, len(read) - _MAX_READ_PAIRS))]:
                del read[pair]

    def of_cycle(self, partition: TopicPartition) -> list[pa.Table]:
        """Return the deletes and inserts of a partition's key changes in the open cycle."""
        return self._staged.get(partition, [])

    def read_pairs(self, open_pairs: Iterable[str]) -> Counter[str]:
        """Return the number of staged or committed deletes for each pair ID.

        `open_pairs` are the pair IDs in the table description. Their deletes have been committed.
        """
        read = Counter[str]()
        for pairs in self._read_pairs.values():
            read.update(pairs)
        return read | Counter(open_pairs)

    def stage_alone(self, partition: TopicPartition, offset: int) -> None:
        """Stage an insert without its delete. Values that the source did not send become null."""
        self._alone.add((partition, offset))

    def staged(self, partition: TopicPartition) -> None:
        self._staged.pop(partition, None)

    def forget(self, partition: TopicPartition) -> None:
        for pairs in (self._staged, self._read_pairs, self._last_deletes):
            pairs.pop(partition, None)

    def clear(self) -> None:
        for partition in [*self._read_pairs]:
            self.forget(partition)


def pairs_in(findings: Findings) -> Mapping[TopicPartition, pa.Table]:
    """Return the deletes and inserts of key changes among converted rows."""
    return findings.get(_FINDING, {})


def pairs_of(pairs: pa.Table, half: Half) -> list[str]:
    """Return the pair IDs of all deletes or all inserts, depending on `half`."""
    ids: list[str] = pairs.column(PAIR).filter(pc.equal(pairs.column(HALF), int(half))).to_pylist()
    return ids


def _pair_id(both_keys: str, position: Any) -> str:
    data = f"{both_keys} {json.dumps(position, sort_keys=True, default=str)}"
    digits = hashlib.sha256(data.encode()).hexdigest()[:_PAIR_DIGITS]
    return digits if position is None else digits + PLACED
