"""`LastCommits`: the newest commit to each table, stored in the offset metadata.

If a catalog is restored from a backup, the ledgers of its tables are also restored. Then, only the
consumer group's offset metadata still records later commits (rule 4 of the commit protocol).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping

from connectors.iceberg.protocol.ledger import Ledger
from connectors.iceberg.protocol.offset_metadata import OffsetMetadata
from connectors.iceberg.protocol.packed import pack, unpack

# maximum bytes per partition, enough for about 300 tables; brokers accept up to 4,096 bytes
TEXT_LENGTH = 3_000
ALL_TEXTS = 256_000  # maximum bytes for all partitions in one offset commit request

# epoch number and cycle, which order the commits to a table
Stamp = tuple[int, int]


class LastCommits:
    """Records the stamp (epoch number and cycle) of the newest known commit to each table.

    The coordinator sends the stamps to the tasks with every floor, and the tasks commit them with
    the offsets. If the stamps exceed the size limit, the tables with the oldest commits are
    omitted, because a backup probably contains these commits. A table is identified by a 32-bit
    hash of its UUID. A collision causes an unnecessary re-read.
    """

    __slots__ = ("_encoded", "_since", "_stamps")

    def __init__(self, since: int = 0, stamps: Mapping[int, Stamp] | None = None) -> None:
        """Create the stamps of a connector's tables.

        Args:
            since: Number of the last epoch in which all offsets were altered. Stamps in metadata
                from earlier epochs are ignored.
            stamps: Stamps by hash of the table UUID.
        """
        self._since = since
        self._stamps = dict(stamps or {})
        # encoded form, and the number of partitions for which its length was limited
        self._encoded: tuple[int, str] | None = None

    @classmethod
    def of_marks(cls, marks: Iterable[OffsetMetadata]) -> LastCommits:
        """Merge the stamps in the metadata of all group offsets.

        Most partitions have the same metadata, which is decoded once.
        """
        encoded = {(mark.epoch.number, mark.commits) for mark in marks if mark.commits}
        decoded = [(epoch, cls._decode(commits)) for epoch, commits in encoded]
        merged = cls(max((commits._since for _, commits in decoded), default=0))
        for epoch, commits in decoded:
            if epoch < merged._since:
                continue
            for table, stamp in commits._stamps.items():
                merged._stamps[table] = max(stamp, merged._stamps.get(table, stamp))
        return merged

    @classmethod
    def _decode(cls, encoded: str) -> LastCommits:
        since, _, packed = encoded.partition(":")
        try:
            tables, epochs, cycles = unpack(packed, 3)
            return cls(int(since), dict(zip(tables, zip(epochs, cycles, strict=True), strict=True)))
        except ValueError:
            return cls()  # written by a later version; stamps are only an additional safeguard

    def note(self, uuid: str, ledger: Ledger) -> None:
        """Record a commit to a table."""
        table, stamp = _table_hash(uuid), stamp_of(ledger)
        if stamp > self._stamps.get(table, (-1, -1)):
            self._stamps[table] = stamp
            self._encoded = None

    def newest(self, uuid: str) -> Stamp | None:
        """Return the stamp of the newest known commit to a table, or None if there is none."""
        return self._stamps.get(_table_hash(uuid))

    def to_text(self, partitions: int) -> str:
        """Encode the stamps for the offset metadata of `partitions` partitions.

        The result is empty if there are no stamps, or if even a single stamp exceeds the limit.
        """
        if self._encoded is None or self._encoded[0] != partitions:
            length = min(TEXT_LENGTH, ALL_TEXTS // max(1, partitions))
            self._encoded = partitions, self._encode(length)
        return self._encoded[1]

    def _encode(self, length: int) -> str:
        newest = sorted(self._stamps.items(), key=lambda item: (item[1], item[0]), reverse=True)
        while newest or self._since:
            tables, stamps = zip(*newest, strict=True) if newest else ((), ())
            columns = tables, (epoch for epoch, _ in stamps), (cycle for _, cycle in stamps)
            encoded = f"{self._since}:{pack(*columns)}"
            if len(encoded) <= length:
                return encoded
            if not newest:
                break
            newest = newest[: min(len(newest) - 1, len(newest) * length // len(encoded))]
        return ""


def stamp_of(ledger: Ledger) -> Stamp:
    """Return the stamp of the commit that wrote a ledger."""
    return ledger.epoch.number, ledger.cycle


def _table_hash(uuid: str) -> int:
    return int.from_bytes(hashlib.blake2b(uuid.encode(), digest_size=4).digest(), "big")
