"""Columnar form of JsonConverter with `schemas.enable=true`.

Each message contains its schema, and most messages in a topic start with exactly the same bytes.
The schema in these bytes is parsed once. It applies to the payload of every message that starts
with the same bytes. The native decoder decodes the payloads. The row form of the converter,
which converts one message at a time, handles payloads that the native decoder rejects (*odd*
payloads) and all other messages.
"""

from __future__ import annotations

import operator
import re
from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import repeat
from typing import TYPE_CHECKING, Final

import msgspec

from connect_py.api.batch import Column
from connect_py.api.converter import ColumnRun
from connect_py.api.errors import DataError, NotColumnar
from connect_py.api.schema import Schema, SchemaAndValue, Value
from connect_py.columns.joined_bytes import NOTHING, JoinedBytes
from connect_py.converters.column_runs import column_of_rows, column_runs, replace_rows
from connect_py.converters.json.schema_columns import SchemaColumns

if TYPE_CHECKING:
    import pyarrow as pa

MAX_ENVELOPES: Final = 64  # cached per topic
MIN_ROWS_PER_CUT: Final = 100

_END: Final = b"}"  # end of the envelope
_HEAD = re.compile(rb'[ \t\n\r]*\{[ \t\n\r]*"schema"[ \t\n\r]*:[ \t\n\r]*')
_NECK = re.compile(rb'[ \t\n\r]*,[ \t\n\r]*"payload"[ \t\n\r]*:[ \t\n\r]*')

REFUSALS: Final = (msgspec.MsgspecError, ValueError, RecursionError)
"""Errors that msgspec raises for input that it does not accept."""


class EnvelopeText(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """The two members of an envelope, unparsed."""

    schema: msgspec.Raw
    payload: msgspec.Raw


ENVELOPES: Final = msgspec.json.Decoder(EnvelopeText)


@dataclass(frozen=True, slots=True)
class _Envelope:
    """The envelope of all messages that have the same schema."""

    schema: Schema
    columns: SchemaColumns | None  # None if the row form converts all messages
    prefix: bytes | None  # bytes before each payload; None if there are no envelopes

    def payload(self, message: bytes) -> bytes | None:
        """Return the payload of a message, or None if the message has a different prefix."""
        if self.prefix is None:
            return message
        if not message.startswith(self.prefix) or not message.endswith(_END):
            return None
        return message[len(self.prefix) : -len(_END)]

    def payloads(self, messages: Sequence[bytes | None]) -> Sequence[bytes | None] | None:
        """Return the payloads of all messages, or None if a message has a different prefix."""
        prefix = self.prefix
        if prefix is None:
            return messages
        if isinstance(messages, JoinedBytes):
            return _payloads_of_joined(messages, prefix)
        payloads = [
            None if m is None else m.removeprefix(prefix).removesuffix(_END) for m in messages
        ]
        count = len(messages) - sum(map(operator.is_, messages, repeat(None)))
        expected = sum(map(len, filter(None, messages))) - count * (len(prefix) + len(_END))
        return payloads if sum(map(len, filter(None, payloads))) == expected else None


def _payloads_of_joined(messages: JoinedBytes, prefix: bytes) -> list[bytes | None] | None:
    """Return the payloads, or None if a message has a different prefix.

    The prefix, which contains a schema of several kilobytes, is compared without being copied.
    """
    data, head, start = messages.data, len(prefix), 0
    payloads: list[bytes | None] = []
    for length in messages.lengths:
        if length == NOTHING:
            payloads.append(None)
            continue
        end = start + length
        if length <= head or not (
            data.startswith(prefix, start) and data.startswith(_END, end - 1)
        ):
            return None
        payloads.append(data[start + head : end - 1])
        start = end
    return payloads


class EnvelopedColumns:
    """Converts messages from one topic to columns. Caches schemas across calls."""

    def __init__(
        self,
        row_form: Callable[[bytes], SchemaAndValue],
        parse_schema: Callable[[bytes], Schema | None],
        fixed_schema: Schema | None,
        *,
        replace_null_with_default: bool,
    ) -> None:
        """Prepare the conversion.

        Args:
            row_form: Converts one message.
            parse_schema: Parses a schema.
            fixed_schema: Schema of all messages if they are payloads without an envelope. None if
                each message contains its schema.
            replace_null_with_default: True to replace null with the field's default.
        """
        self._row_form = row_form
        self._parse_schema = parse_schema
        self._replaces_nulls = replace_null_with_default
        self._envelopes: OrderedDict[bytes, _Envelope] = OrderedDict()
        self._columns: dict[Schema, SchemaColumns | None] = {}
        self._last: _Envelope | None = None
        self._fixed: _Envelope | None = None
        if fixed_schema is not None:
            self._fixed = _Envelope(fixed_schema, self._columns_of(fixed_schema), None)

    def _columns_of(self, schema: Schema) -> SchemaColumns | None:
        if schema not in self._columns:
            if len(self._columns) > MAX_ENVELOPES:
                self._columns.clear()
            self._columns[schema] = None
            with suppress(NotColumnar):
                self._columns[schema] = SchemaColumns(
                    schema, replace_null_with_default=self._replaces_nulls
                )
        return self._columns[schema]

    def read(self, data: Sequence[bytes | None]) -> list[ColumnRun]:
        """Convert messages to runs. A run ends where the schema changes.

        Raises:
            NotColumnar: Schemas change too often, a message has no schema, or columns cannot
                represent a value.
        """
        return column_runs(
            len(data), lambda start: self._run(data, start), MIN_ROWS_PER_CUT, "schemas change"
        )

    def _run(self, data: Sequence[bytes | None], start: int) -> ColumnRun:
        envelope = self._find_envelope(data, start)
        rows = _Rows(self._row_form, data, start, envelope)
        if envelope is not None and envelope.columns is not None and not start:
            payloads = envelope.payloads(data)
            if payloads is not None:
                return rows.column_run(payloads)
        return rows.column_run(rows.payloads())

    def _find_envelope(self, data: Sequence[bytes | None], start: int) -> _Envelope | None:
        """Return the envelope of the first message that has a schema, or None if there is none."""
        if self._fixed is not None:
            return self._fixed
        for index in range(start, len(data)):
            message = data[index]
            if message is None:
                continue
            envelope = self._known_envelope(message) or self._new_envelope(message)
            if envelope is not None:
                self._last = envelope
                return envelope
        return None

    def _known_envelope(self, message: bytes) -> _Envelope | None:
        last = self._last
        if last is not None and last.prefix and message.startswith(last.prefix):
            return last
        envelopes = self._envelopes.items()
        return next((each for prefix, each in envelopes if message.startswith(prefix)), None)

    def _new_envelope(self, message: bytes) -> _Envelope | None:
        """Create an envelope for a message with a new prefix. Return None if there is no schema."""
        prefix_and_schema = self._parse_prefix(message)
        if prefix_and_schema is None:
            try:
                schema = self._row_form(message).schema
            except DataError:
                return None
            # unusual JSON, such as a payload that precedes the schema
            return None if schema is None else _Envelope(schema, None, b"")
        prefix, schema = prefix_and_schema
        envelope = self._envelopes[prefix] = _Envelope(schema, self._columns_of(schema), prefix)
        if len(self._envelopes) > MAX_ENVELOPES:
            self._envelopes.popitem(last=False)
        return envelope

    def _parse_prefix(self, message: bytes) -> tuple[bytes, Schema] | None:
        """Return the bytes before the payload and the schema that they contain.

        Return None if there is no schema or it does not precede the payload.
        """
        try:
            schema_text = bytes(ENVELOPES.decode(message).schema)
            schema = self._parse_schema(schema_text)
        except (*REFUSALS, DataError):
            return None
        head = _HEAD.match(message)
        if schema is None or head is None or not message.startswith(schema_text, head.end()):
            return None
        neck = _NECK.match(message, head.end() + len(schema_text))
        return None if neck is None else (message[: neck.end()], schema)


class _Rows:
    """The rows of one run that the row form converts."""

    def __init__(
        self,
        row_form: Callable[[bytes], SchemaAndValue],
        data: Sequence[bytes | None],
        start: int,
        envelope: _Envelope | None,
    ) -> None:
        self._row_form = row_form
        self._data = data
        self._start = start
        self._envelope = envelope
        self._schema = None if envelope is None else envelope.schema
        # both are keyed by the row index in the run
        self._values: dict[int, Value] = {}
        self._failures: dict[int, DataError] = {}

    def payloads(self) -> list[bytes | None]:
        """Return the payloads for the native decoder, up to the first message with another schema.

        Messages that the native decoder cannot decode are converted by the row form, and their
        payload is None.
        """
        envelope = self._envelope
        is_native = envelope is not None and envelope.columns is not None
        payloads: list[bytes | None] = []
        for index in range(self._start, len(self._data)):
            message = self._data[index]
            payload = None
            if message is not None:
                if envelope is not None and is_native:
                    payload = envelope.payload(message)
                if payload is None and not self._convert(len(payloads), message):
                    break
            payloads.append(payload)
        return payloads

    def _convert(self, row: int, message: bytes) -> bool:
        """Convert a message. Return False if it has another schema."""
        try:
            result = self._row_form(message)
        except DataError as error:
            self._failures[row] = error
            return True
        if result.schema is None:
            if result.value is not None:
                raise NotColumnar("a message has no schema")
            return True  # equivalent to a null message
        if result.schema != self._schema:
            return False
        self._values[row] = result.value
        return True

    def column_run(self, payloads: Sequence[bytes | None]) -> ColumnRun:
        """Create the run from these payloads and the messages that the row form converted."""
        columns = None if self._envelope is None else self._envelope.columns
        if columns is None:
            data, tombstone = self._column_of_values(len(payloads))
        else:
            decoded, data, odd = columns.read(payloads)
            for row in odd:
                if not self._convert(row, self._data[self._start + row] or b""):
                    raise NotColumnar("an envelope contains two schemas")
            data, _ = replace_rows(self._schema, data, self._values)
            tombstone = decoded.nulls_except(self._values.keys() | self._failures.keys())
        failures = {self._start + row: error for row, error in self._failures.items()}
        column = Column(self._schema, data, tombstone)
        return ColumnRun(self._start, self._start + len(payloads), column, failures)

    def _column_of_values(self, rows: int) -> tuple[pa.Array, pa.BooleanArray | None]:
        """Return the column for a run without native columns, and a mask of its null messages."""
        import pyarrow as pa

        data, _ = column_of_rows(self._schema, [self._values.get(row) for row in range(rows)])
        null = [row not in self._values and row not in self._failures for row in range(rows)]
        return data, pa.array(null, pa.bool_()) if any(null) else None
