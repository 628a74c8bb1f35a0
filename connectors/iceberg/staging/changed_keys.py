"""`ChangedKeys`: the records that are half of a change of the key, and the deletes among them that
were staged."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable
from itertools import islice
from operator import attrgetter
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from connect_py.api.batch import Batch
from connect_py.api.record import TopicPartition
from connectors.iceberg.config.sink_config import IcebergSinkConfig
from connectors.iceberg.conversion.columns import tombstones
from connectors.iceberg.staging.ordering import ORDER
from connectors.iceberg.staging.staged_changes import HALF, OFFSET, PAIR, PLACED, Half
from connectors.iceberg.staging.table_converter import TableConverter

_KEYS = "keys"  # of a pair, old and new, for people
PAIRS: Final = pa.schema(
    [(OFFSET, pa.int64()), (PAIR, pa.string()), (HALF, pa.int32()), (_KEYS, pa.string())]
)
_NEW_KEY = "__debezium.newkey"  # of the delete that a change of the key begins with
_OLD_KEY = "__debezium.oldkey"  # of the insert that it ends with
_KEY_HEADERS = frozenset({_OLD_KEY, _NEW_KEY})
_header_key = attrgetter("key")
_PAIR_DIGITS = 20
_MOST_READ_PAIRS = 100_000  # of a partition, to remember
_SOURCE = "source"  # of a change event: where the change was made


class ChangedKeys:
    """Of one table. Used by the task thread only."""

    def __init__(self, config: IcebergSinkConfig) -> None:
        self._config = config
        # How many more deletes of a pair were staged than inserts. The table's open pairs tell of
        # those that leave.
        self._read_pairs: dict[TopicPartition, Counter[str]] = {}
        self._last_deletes: dict[
            TopicPartition, tuple[int, str]
        ] = {}  # the offset of the last of a pair, and its keys
        # inserts whose delete was waited for in vain
        self._alone: set[tuple[TopicPartition, int]] = set()
        self._staged: dict[TopicPartition, list[pa.Table]] = {}  # in this cycle

    def halves(
        self, batch: Batch, rows: pa.Table, converter: TableConverter
    ) -> dict[TopicPartition, pa.Table]:
        """By Kafka partition, the rows that are half of a change of the key, as `PAIRS` has them.

        `rows`: converted, one for each of the batch.
        """
        # no value will be asked for under an old key
        if batch.headers is None or not self._config.unavailable_value:
            return {}
        changed = [
            n
            for n, each in enumerate(batch.headers)
            if not _KEY_HEADERS.isdisjoint(map(_header_key, each))
        ]
        if not changed:
            return {}
        origin, raw = batch.origin, batch.value
        source = raw.member(_SOURCE) if raw.is_struct() else None
        silent, last = tombstones(raw), dict(self._last_deletes)
        found: dict[TopicPartition, list[tuple[int, str, int, str]]] = {}
        for row in changed:
            old, new = (
                batch.headers[row].last_with(_OLD_KEY),
                batch.headers[row].last_with(_NEW_KEY),
            )
            other = converter.key_of(old or new)
            if other is None:
                continue
            own = [rows.column(key)[row].as_py() for key in converter.keys]
            tp, offset = (
                TopicPartition(origin.topic, origin.partitions[row].as_py()),
                origin.offsets[row].as_py(),
            )
            half, keys = (Half.DELETE, (own, other)) if old is None else (Half.INSERT, (other, own))
            if half is Half.INSERT and (tp, offset) in self._alone:
                half = Half.INSERT_ALONE
            text = json.dumps(keys, default=str)
            if silent is not None and silent[row].as_py() and last.get(tp) == (offset - 1, text):
                continue  # the tombstone that follows a delete
            if half is Half.DELETE:
                last[tp] = offset, text
            place = source.data[row].as_py() if source is not None else None
            if self._config.ordering_columns:
                place = rows.column(ORDER)[row].as_py()
            whole = f"{text} {json.dumps(place, sort_keys=True, default=str)}"
            pair = hashlib.sha256(whole.encode()).hexdigest()[:_PAIR_DIGITS] + (
                "" if place is None else PLACED
            )
            found.setdefault(tp, []).append((offset, pair, int(half), text))
        return {
            tp: pa.Table.from_pylist(
                [dict(zip(PAIRS.names, each, strict=True)) for each in all_], PAIRS
            )
            for tp, all_ in found.items()
        }

    def known(self, open_pairs: Iterable[str]) -> Counter[str]:
        """Pairs whose delete was staged here, or committed as far as the coordinator said; and how
        many of each.

        `open_pairs`: what the table's description says of those that were committed.
        """
        read = Counter[str]()
        for each in self._read_pairs.values():
            read.update(each)
        return read | Counter(open_pairs)

    def add(self, partition: TopicPartition, changed: pa.Table) -> None:
        """These rows are staged."""
        self._staged.setdefault(partition, []).append(changed)
        if changed.column(HALF)[-1].as_py() == Half.DELETE:
            self._last_deletes[partition] = (
                changed.column(OFFSET)[-1].as_py(),
                changed.column(_KEYS)[-1].as_py(),
            )
        read = self._read_pairs.setdefault(partition, Counter())
        read.update(pairs_of(changed, Half.DELETE))
        read.subtract(pairs_of(changed, Half.INSERT))
        for pair in [*islice(read, max(0, len(read) - _MOST_READ_PAIRS))]:
            del read[pair]

    def staged(self, partition: TopicPartition) -> list[pa.Table]:
        """What was added in this cycle."""
        return self._staged.get(partition, [])

    def go_alone(self, partition: TopicPartition, offset: int) -> None:
        """Go on with an insert whose delete was waited for in vain: what it lacks is null."""
        self._alone.add((partition, offset))

    def close_cycle(self, partition: TopicPartition) -> None:
        """What was added belongs to a cycle that is over; its deletes stay known."""
        self._staged.pop(partition, None)

    def drop(self, partition: TopicPartition) -> None:
        """The rows of a partition were lost, or are read again."""
        for known in (self._staged, self._read_pairs, self._last_deletes):
            known.pop(partition, None)

    def clear(self) -> None:
        """All rows are lost, or read again."""
        for partition in [*self._read_pairs]:
            self.drop(partition)


def pairs_of(changed: pa.Table, half: Half) -> list[str]:
    """Of changes of keys, as `StagedRows` has them, the pairs of which this half is there."""
    found: list[str] = (
        changed.column(PAIR).filter(pc.equal(changed.column(HALF), int(half))).to_pylist()
    )
    return found
