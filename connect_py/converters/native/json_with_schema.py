"""JSON payloads of one Connect schema by the native decoder."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import msgspec

from connect_py.api.batch import Column
from connect_py.api.errors import DataError
from connect_py.api.schema import NULL, SchemaAndValue, Value
from connect_py.converters.json_schema_columns import SchemaReader
from connect_py.converters.native.decoder import NativeDecoder, refusals
from connect_py.converters.native.native_rows import NativeRows


class NativeJsonWithSchema:
    """Reads payloads of one schema."""

    def __init__(self, reader: SchemaReader) -> None:
        """NotColumnar: the decoder is not there, or cannot read this schema."""
        self._decoder = NativeDecoder(replace(reader.node(), nullable=False))
        self._reader = reader
        self._decode = msgspec.json.Decoder(reader.type).decode

    def read(
        self, texts: Sequence[bytes | None], reference: Callable[[int], SchemaAndValue]
    ) -> tuple[Column, Mapping[int, DataError]]:
        """Make the column of payloads, null where there is no text, and say which of them are
        damaged.

        `reference` converts the message of a payload.

        Raises:
            NotColumnar: The reference takes a payload that the decoder does not take.
        """
        decoded, odd = self._decoder.read_json(texts)
        failures = refusals(odd, lambda place: reference(place) == NULL)
        schema, data, tombstone = (
            self._reader.schema,
            self._reader.native_column(decoded),
            decoded.nulls_but(failures),
        )
        if not decoded.is_object:
            return Column(schema, data, tombstone), failures
        if odd:
            left_out = set(odd)
            texts = [None if place in left_out else text for place, text in enumerate(texts)]
        return Column(
            schema, NativeRows(Column(schema, data), texts, self._values), tombstone
        ), failures

    def _values(self, texts: Sequence[bytes | None]) -> list[Value]:
        return self._reader.row_values(
            [None if text is None else self._decode(text) for text in texts]
        )
