"""What the newest commit of each table was (rule 4): a restored catalog takes the tables' own word
with it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping

from connectors.iceberg.protocol.ledger import Ledger
from connectors.iceberg.protocol.offset_metadata import OffsetMetadata
from connectors.iceberg.protocol.packed import pack, unpack

TEXT_LENGTH = 3_000  # of one mark, of which brokers take 4,096 bytes: some 300 tables
ALL_TEXTS = 256_000  # of all partitions of a group together: what one commit of offsets may weigh

# number of the epoch, and the cycle in it: the commits of a table come in this order
Stamp = tuple[int, int]


class LastCommits:
    """The stamp of each table's newest commit that ever was seen, by table uuid.

    The coordinator gives it to the tasks with every floor, and they put it into the group beside
    the offset. When the text has no room for all, the tables committed longest ago are left out: a
    backup that is brought back holds their newest commits too. A table is known by 32 bits of a
    hash; two that share them cost a needless re-read.
    """

    __slots__ = ("_since", "_stamps", "_text")

    def __init__(self, since: int = 0, stamps: Mapping[int, Stamp] | None = None) -> None:
        """`since`: number of the epoch in which all offsets were altered; what marks of before say
        does not count."""
        self._since = since
        self._stamps = dict(stamps or {})
        # with the number of partitions that it was made for
        self._text: tuple[int, str] | None = None

    @classmethod
    def of_marks(cls, marks: Iterable[OffsetMetadata]) -> LastCommits:
        """All that the marks of a group know together; many partitions have the same text, which is
        read once."""
        texts = {(mark.epoch.number, mark.commits) for mark in marks if mark.commits}
        parsed = [(epoch, cls._parsed(text)) for epoch, text in texts]
        merged = cls(max((known._since for _, known in parsed), default=0))
        for epoch, known in parsed:
            if epoch < merged._since:
                continue
            for table, stamp in known._stamps.items():
                merged._stamps[table] = max(stamp, merged._stamps.get(table, stamp))
        return merged

    @classmethod
    def _parsed(cls, text: str) -> LastCommits:
        since, _, packed = text.partition(":")
        try:
            tables, epochs, cycles = unpack(packed, 3)
            return cls(int(since), dict(zip(tables, zip(epochs, cycles, strict=True), strict=True)))
        except ValueError:
            return cls()  # a form of a later version: it only ever adds caution

    def note(self, uuid: str, ledger: Ledger) -> None:
        """A commit to the table was seen."""
        table, stamp = _short(uuid), stamp_of(ledger)
        if stamp > self._stamps.get(table, (-1, -1)):
            self._stamps[table] = stamp
            self._text = None

    def newest(self, uuid: str) -> Stamp | None:
        """Return the newest commit of a table that was ever seen. None: there was none."""
        return self._stamps.get(_short(uuid))

    def to_text(self, partitions: int) -> str:
        """For the marks of so many partitions; empty when there is nothing to say, or no room."""
        if self._text is None or self._text[0] != partitions:
            self._text = (
                partitions,
                self._written(min(TEXT_LENGTH, ALL_TEXTS // max(1, partitions))),
            )
        return self._text[1]

    def _written(self, length: int) -> str:
        newest = sorted(self._stamps.items(), key=lambda item: (item[1], item[0]), reverse=True)
        while newest or self._since:
            tables, stamps = zip(*newest, strict=True) if newest else ((), ())
            text = f"{self._since}:{pack(tables, (e for e, _ in stamps), (c for _, c in stamps))}"
            if len(text) <= length:
                return text
            if not newest:
                break
            newest = newest[: min(len(newest) - 1, len(newest) * length // len(text))]
        return ""


def stamp_of(ledger: Ledger) -> Stamp:
    """Return the stamp of the commit that wrote a ledger."""
    return ledger.epoch.number, ledger.cycle


def _short(uuid: str) -> int:
    return int.from_bytes(hashlib.blake2b(uuid.encode(), digest_size=4).digest(), "big")
