"""The batch form of JsonConverter with the schema beside each payload.

The same schema text comes with message after message. It is read once; messages that begin with the
very same bytes are payloads of that schema.
"""

from __future__ import annotations

import operator
import re
from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import repeat
from typing import Any, Final

import msgspec

from connect_py.api.batch import Column
from connect_py.api.converter import ColumnRun
from connect_py.api.errors import DataError, NotColumnar
from connect_py.api.schema import Schema, SchemaAndValue
from connect_py.columns.joined_bytes import NOTHING, JoinedBytes
from connect_py.converters.column_runs import column_runs
from connect_py.converters.json_schema_columns import SchemaReader, column_of, schema_reader
from connect_py.converters.native.json_with_schema import NativeJsonWithSchema
from connect_py.converters.schemaless_json_reader import MIN_ROWS_PER_CUT, NULL_TEXT, REFUSED
from connect_py.converters.skipped_text import REFUSED_TEXT, unsafe

MAX_PREFIXES: Final = 64  # per topic: schema texts that are known at a time
_FIRST_WINDOW: Final = 64  # messages; after a change of schema the next one may be near

_CLOSE: Final = b"}"  # of the envelope
_NO_PREFIX: Final = b"\0"  # no JSON begins like this

_HEAD = re.compile(rb'[ \t\n\r]*\{[ \t\n\r]*"schema"[ \t\n\r]*:[ \t\n\r]*')
_NECK = re.compile(rb'[ \t\n\r]*,[ \t\n\r]*"payload"[ \t\n\r]*:[ \t\n\r]*')


class Envelope(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """The two members of a message, as text."""

    schema: msgspec.Raw
    payload: msgspec.Raw


ENVELOPES: Final = msgspec.json.Decoder(Envelope)


@dataclass(frozen=True, slots=True)
class _Payloads:
    """Reads the payloads of messages that begin with `prefix`."""

    prefix: bytes
    tail: int  # bytes that close the envelope
    schema: Schema
    reader: SchemaReader
    decode: Callable[[bytes], Any]
    native: NativeJsonWithSchema | None

    def owns(self, messages: Sequence[bytes | None]) -> list[bool]:
        """Say of each message whether it is one of these; a null is."""
        prefix = self.prefix
        if not self.tail:
            return [True] * len(messages)
        return [m is None or (m.startswith(prefix) and m.endswith(_CLOSE)) for m in messages]

    def all_texts(self, messages: Sequence[bytes | None]) -> Sequence[bytes | None] | None:
        """Cut the payloads out of messages in one pass over their bytes; None: some message is not
        owned."""
        if not self.tail:
            return self.texts(messages)
        prefix = self.prefix
        if isinstance(messages, JoinedBytes):
            return _cut(messages, prefix)
        texts = [
            None if m is None else m.removeprefix(prefix).removesuffix(_CLOSE) for m in messages
        ]
        there = len(messages) - sum(map(operator.is_, messages, repeat(None)))
        cut = there * (len(prefix) + len(_CLOSE))  # less was cut where either is not there
        if sum(map(len, filter(None, texts))) != sum(map(len, filter(None, messages))) - cut:
            return None
        return texts

    def texts(self, messages: Sequence[bytes | None]) -> Sequence[bytes | None]:
        """Cut the payloads out of messages that are owned."""
        if not self.tail:
            return messages
        start = len(self.prefix)
        return [None if m is None else m[start : -len(_CLOSE)] for m in messages]


def _cut(messages: JoinedBytes, prefix: bytes) -> list[bytes | None] | None:
    """Cut what stands between a prefix and the end of the envelope; None: some message is another.

    The prefix, some kilobytes of schema, is compared where it lies.
    """
    data, head, start = messages.data, len(prefix), 0
    texts: list[bytes | None] = []
    for length in messages.lengths:
        if length == NOTHING:
            texts.append(None)
            continue
        end = start + length
        if length <= head or not (
            data.startswith(prefix, start) and data.startswith(_CLOSE, end - 1)
        ):
            return None
        texts.append(data[start + head : end - 1])
        start = end
    return texts


class EnvelopedJsonReader:
    """Makes columns of one topic's messages; remembers schema texts from call to call."""

    def __init__(
        self,
        reference: Callable[[bytes], SchemaAndValue],
        read_schema: Callable[[bytes], Schema | None],
        fixed_schema: Schema | None,
        *,
        replace_null_with_default: bool,
    ) -> None:
        """`reference` converts one message, `read_schema` makes a schema of its JSON text."""
        self._reference = reference
        self._read_schema = read_schema
        self._replace_nulls = replace_null_with_default
        self._known: OrderedDict[bytes, _Payloads] = OrderedDict()
        self._readers: dict[Schema, SchemaReader] = {}
        self._current: _Payloads | None = None
        if fixed_schema is not None:
            self._current = self._payloads(b"", fixed_schema, tail=0)

    def _payloads(self, prefix: bytes, schema: Schema, tail: int = 1) -> _Payloads:
        reader = self._readers.get(schema)
        if reader is None:
            reader = schema_reader(schema, replace_null_with_default=self._replace_nulls)
            if len(self._readers) > MAX_PREFIXES:
                self._readers.clear()
            self._readers[schema] = reader
        try:
            native = NativeJsonWithSchema(reader)
        except NotColumnar:
            native = None
        return _Payloads(
            prefix, tail, schema, reader, msgspec.json.Decoder(reader.type | None).decode, native
        )

    def read(self, data: Sequence[bytes | None]) -> list[ColumnRun]:
        """Convert messages; a run ends where the schema changes.

        Raises: NotColumnar: Schemas change too often, there is data without a schema, or a value
            has no column form.
        """
        whole = self._whole(data)
        if whole is not None:
            return [whole]

        def run_from(start: int) -> ColumnRun:
            return _Run(self._reference, data, start, self._choose(data, start)).read(
                whole=not start
            )

        return column_runs(len(data), run_from, MIN_ROWS_PER_CUT, "schemas change")

    def _whole(self, data: Sequence[bytes | None]) -> ColumnRun | None:
        """Read all messages by the native decoder; None: they are not of one schema, or not all as
        it takes them."""
        payloads = self._choose(data, 0)
        texts = None if payloads is None or payloads.native is None else payloads.all_texts(data)
        if payloads is None or payloads.native is None or texts is None:
            return None
        try:
            column, failures = payloads.native.read(
                texts, lambda place: self._reference(data[place] or b"")
            )
        except NotColumnar:
            return None
        return ColumnRun(0, len(data), column, failures)

    def _choose(self, data: Sequence[bytes | None], start: int) -> _Payloads | None:
        """Find out what reads the first message that has a schema; None: no message has one."""
        current = self._current
        if current is not None and not current.tail:
            return current
        for index in range(start, len(data)):
            message = data[index]
            if message is None:
                continue
            if current is not None and message.startswith(current.prefix):
                return current
            found = next((p for p in self._known.values() if message.startswith(p.prefix)), None)
            found = found or self._learn(message) or self._adopt(message)
            if found is not None:
                self._current = found
                return found
        return None

    def _adopt(self, message: bytes) -> _Payloads | None:
        """Take the schema of a message that the reference form alone can read; None: it has
        none."""
        try:
            schema = self._reference(message).schema
        except DataError:
            return None
        return None if schema is None else self._payloads(_NO_PREFIX, schema)

    def _learn(self, message: bytes) -> _Payloads | None:
        """Read the schema of a message; None: it has none, or it stands in an unusual place."""
        try:
            envelope = ENVELOPES.decode(message)
            schema_text = bytes(envelope.schema)
            schema = self._read_schema(schema_text)
        except (*REFUSED, DataError):
            return None
        head = _HEAD.match(message)
        if schema is None or head is None or not message.startswith(schema_text, head.end()):
            return None
        neck = _NECK.match(message, head.end() + len(schema_text))
        if neck is None:
            return None
        prefix = message[: neck.end()]
        made = self._known[prefix] = self._payloads(prefix, schema)
        if len(self._known) > MAX_PREFIXES:
            self._known.popitem(last=False)
        return made


def _index(owned: Sequence[bool], start: int) -> int:
    """The first message from `start` on that is not owned, or the end."""
    try:
        return owned.index(False, start)
    except ValueError:
        return len(owned)


_ANOTHER_SCHEMA: Final = object()  # begins the next run


class _Run:
    """One run in the making."""

    def __init__(
        self,
        reference: Callable[[bytes], SchemaAndValue],
        data: Sequence[bytes | None],
        start: int,
        payloads: _Payloads | None,
    ) -> None:
        self._reference = reference
        self._data = data
        self._start = start
        self._payloads = payloads
        self._rows: list[Any] = []  # decoded values, None for all that is null
        self._nulls: list[int] = []  # rows whose message is null, or stands for one
        self._failures: dict[int, Exception] = {}  # by row

    def read(self, *, whole: bool) -> ColumnRun:
        """Read on until another schema begins; `whole`: there is no reason yet to expect one."""
        window = len(self._data) if whole else _FIRST_WINDOW
        position = self._start
        ended = False
        while position < len(self._data) and not ended:
            messages = self._data[position : position + window]
            ended = self._read_window(messages)
            position += len(messages)
            window *= 2
        return self._column_run()

    def _read_window(self, messages: Sequence[bytes | None]) -> bool:
        """Read some messages; return whether another schema began."""
        payloads = self._payloads
        texts = None if payloads is None else payloads.all_texts(messages)
        if payloads is not None and texts is not None:
            self._decode(payloads, messages, texts)
            return False
        owned = [m is None for m in messages] if payloads is None else payloads.owns(messages)
        at = 0
        while at < len(messages):
            end = _index(owned, at)
            if payloads is None:
                self._rows += [
                    self._by_reference(None, i)
                    for i in range(len(self._rows), len(self._rows) + end - at)
                ]
            else:
                self._decode(payloads, messages[at:end], payloads.texts(messages[at:end]))
            if end < len(messages):
                row = self._by_reference(messages[end], len(self._rows))
                if row is _ANOTHER_SCHEMA:
                    return True
                self._rows.append(row)
            at = end + 1
        return False

    def _decode(
        self, payloads: _Payloads, messages: Sequence[bytes | None], texts: Sequence[bytes | None]
    ) -> None:
        rows = self._rows
        first = len(rows)
        known = [text or NULL_TEXT for text in texts]
        for place in unsafe(known):
            known[place] = REFUSED_TEXT
        waiting = iter(known)
        while True:
            with suppress(*REFUSED):
                # what was decoded before an error stays in the list
                rows.extend(map(payloads.decode, waiting))
                break
            rows.append(self._odd_row(messages[len(rows) - first], len(rows)))
        nulls = [index for index, row in enumerate(rows[first:], first) if row is None]
        for index in nulls:
            # a null payload is no null message: it may have a default or be an error
            if index not in self._failures:
                rows[index] = self._odd_row(messages[index - first], index)

    def _odd_row(self, message: bytes | None, index: int) -> Any:
        row = self._by_reference(message, index)
        if row is _ANOTHER_SCHEMA:
            raise NotColumnar("an envelope with two schemas")
        return row

    def _by_reference(self, message: bytes | None, index: int) -> Any:
        """Convert one message with the reference form, to what would have been decoded."""
        if message is None:
            self._nulls.append(index)
            return None
        try:
            made = self._reference(message)
        except DataError as error:
            self._failures[index] = error
            return None
        if made.schema is None:
            if made.value is not None:
                raise NotColumnar("a message without schema")
            self._nulls.append(index)
            return None
        if self._payloads is None or made.schema != self._payloads.schema:
            return _ANOTHER_SCHEMA
        return self._payloads.reader.decoded(made.value)

    def _column_run(self) -> ColumnRun:
        import pyarrow as pa

        rows = self._rows
        stop = self._start + len(rows)
        failures = {self._start + index: error for index, error in self._failures.items()}
        tombstone = None
        if self._nulls:
            marks = [False] * len(rows)
            for index in self._nulls:
                marks[index] = True
            tombstone = pa.array(marks, pa.bool_())
        if self._payloads is None:
            return ColumnRun(
                self._start, stop, Column(None, pa.nulls(len(rows)), tombstone), failures
            )
        return ColumnRun(
            self._start, stop, column_of(self._payloads.reader, rows, tombstone), failures
        )
