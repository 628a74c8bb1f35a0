"""Texts that are the same in every message, as most of Debezium's `source` is: learned once, then only compared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from connect_py.api.errors import DataError, NotColumnar
from connect_py.converters.avro_body import AvroBodyReader, Tree
from connect_py.converters.registry_converter import ID_PREFIX

if TYPE_CHECKING:
    import pyarrow as pa

_SAMPLES: Final = 8  # messages that are looked at
_FEW: Final = 64  # messages: in fewer nothing can be learned
_MOST_PATIENCE: Final = 256  # polls
_TEXTS: Final = ("string", ["null", "string"], ["string", "null"])


class _Part(NamedTuple):
    """A member of a record in one message."""

    value: Any
    start: int
    end: int


class _Run(NamedTuple):
    """Neighbouring members that hold constants."""

    text: bytes  # as it stands in messages
    values: Sequence[str | None]


@dataclass(frozen=True, slots=True)
class ConstantTexts:
    """Constant texts in records that stand in the body, by the record's place there."""

    plain: Tree  # the schema of the bodies, with a `fixed` in place of each run
    records: Mapping[int, Sequence[_Run | None]]  # None: a member that is read

    def put_back(self, body: pa.StructArray, whole: pa.DataType, rows: int) -> pa.StructArray:
        """Make the column of type `whole` from one that was read by `plain`; so many rows are not null.

        Raises:
            NotColumnar: A text is another one in some row.
        """
        import pyarrow as pa

        members = [body.field(index) for index in range(body.type.num_fields)]
        for place, parts in self.records.items():
            record, kind = members[place], whole.field(place).type
            inside: list[pa.Array] = []
            for index, run in enumerate(parts):
                column = record.field(index)
                if run is None:
                    inside.append(column)
                    continue
                if not all_are(column, run.text, rows):
                    raise NotColumnar("a text is no constant")
                inside += [pa.repeat(pa.scalar(value, pa.string()), len(body)) for value in run.values]
            members[place] = _structs(inside, kind, record)
        return _structs(members, whole, body)


def _structs(members: Sequence[pa.Array], kind: pa.DataType, like: pa.StructArray) -> pa.StructArray:
    import pyarrow as pa

    return pa.StructArray.from_arrays(members, fields=list(kind), mask=like.is_null() if like.null_count else None)


def all_are(column: pa.Array, value: bytes, count: int) -> bool:
    """Whether this many rows hold the value and all others are null."""
    import pyarrow as pa
    import pyarrow.compute as pc

    same = pc.equal(column.cast(pa.binary()), value)
    return bool(len(column) - column.null_count == same.true_count == count)


class TextLearner:
    """Finds constant texts of one schema. After each disappointment it waits twice as long before it looks again."""

    def __init__(self, plain: Tree) -> None:
        self._plain = plain
        self._records = [place for place, kind in enumerate(_kinds(plain)) if _has_texts(kind)]
        self._readers: list[list[AvroBodyReader]] = []  # of each member of the body, inside records of each of theirs
        self._patience = 1
        self._waited = 0

    def forget(self) -> None:
        """Hear that a text was no constant."""
        self._patience = min(2 * self._patience, _MOST_PATIENCE)
        self._waited = 0

    def learn(self, messages: Sequence[bytes | None]) -> ConstantTexts | None:
        """Look at some messages, all of them sound; None: there is nothing, or it is not the time."""
        self._waited += 1
        if not self._records or self._waited < self._patience or len(messages) < _FEW:
            return None
        samples = [m for m in messages[:: max(1, len(messages) // _SAMPLES)] if m is not None]
        try:
            looked_at = [self._members(sample) for sample in samples]
        except DataError:
            return None
        if len(samples) < 2:
            return None
        made: dict[int, list[_Run | None]] = {}
        fields = list(self._plain["fields"])
        for place in self._records:
            kinds = _kinds(fields[place]["type"])
            constant = [
                kind in _TEXTS and len({text[place][index].value for text in looked_at}) == 1
                for index, kind in enumerate(kinds)
            ]
            if any(constant):
                made[place], record = self._shortened(fields[place]["type"], constant, samples[0], looked_at[0][place])
                fields[place] = {**fields[place], "type": record}
        if not made:
            self.forget()
            return None
        return ConstantTexts({**self._plain, "fields": fields}, made)

    @staticmethod
    def _shortened(
        record: Tree, constant: Sequence[bool], sample: bytes, parts: Sequence[_Part]
    ) -> tuple[list[_Run | None], Tree]:
        runs: list[_Run | None] = []
        fields: list[Tree] = []
        for is_constant, group in groupby(range(len(parts)), constant.__getitem__):
            places = list(group)
            if not is_constant:
                runs += [None] * len(places)
                fields += [record["fields"][place] for place in places]
                continue
            text = sample[parts[places[0]].start : parts[places[-1]].end]
            runs.append(_Run(text, [parts[place].value for place in places]))
            kind = {"type": "fixed", "name": f"{record['name']}Texts{places[0]}", "size": len(text)}
            fields.append({"name": f"texts{places[0]}", "type": kind})
        return runs, {**record, "fields": fields}

    def _members(self, message: bytes) -> list[list[_Part]]:
        """Where the members of each member of the body are, of those that are records; the others are one part."""
        if not self._readers:
            self._readers = [
                [AvroBodyReader(inside) for inside in (_kinds(kind) if _has_texts(kind) else [kind])]
                for kind in _kinds(self._plain)
            ]
        members = []
        at = ID_PREFIX
        for readers in self._readers:
            parts = []
            for reader in readers:
                value, end = reader.read_part(message, at)
                parts.append(_Part(value, at, end))
                at = end
            members.append(parts)
        return members


def _kinds(plain: Tree) -> list[Tree]:
    """The types of a record's members; of what is no record none."""
    if isinstance(plain, dict) and plain["type"] == "record":
        return [field["type"] for field in plain["fields"]]
    return []


def _has_texts(plain: Tree) -> bool:
    return any(kind in _TEXTS for kind in _kinds(plain))
