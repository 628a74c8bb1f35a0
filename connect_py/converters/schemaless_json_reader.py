"""The batch form of JsonConverter without schemas."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice, repeat
from typing import Any

import msgspec

from connect_py.api.batch import Column
from connect_py.api.converter import ColumnRun
from connect_py.api.errors import DataError, NotColumnar
from connect_py.api.schema import MAX_NESTING
from connect_py.converters.column_runs import column_runs
from connect_py.converters.json_shape import Reader, Shape, column_of
from connect_py.converters.json_text import read_json
from connect_py.converters.native.schemaless_json import NativeSchemalessJson

MAX_WIDENINGS = 12  # per run; each looks twice as far ahead as the one before
MIN_ROWS_PER_CUT = 100
NULL_TEXT = b"null"
# what msgspec raises for text it does not take
REFUSED = (msgspec.MsgspecError, ValueError, RecursionError)


class SchemalessJsonReader:
    """Makes columns of one topic's messages, and remembers their shape from call to call."""

    def __init__(self) -> None:
        self._start_over(None)

    def _start_over(self, value: Any) -> None:
        shape = Shape()
        shape.widen(value)
        self._shape = shape
        self._compile()

    def _compile(self) -> None:
        try:
            self._reader: Reader = self._shape.compile()
        except NotColumnar:
            self._start_over(None)
            raise
        self._decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder(self._reader.type)
        try:
            self._native: NativeSchemalessJson | None = NativeSchemalessJson(self._shape)
        except NotColumnar:
            self._native = None

    def read(self, data: Sequence[bytes | None]) -> list[ColumnRun]:
        """Convert messages; a run ends where a member changes its kind.

        Raises:
            NotColumnar: Kinds change too often, or a value has no column form at all.
        """
        whole = self._whole(data)
        if whole is not None:
            return [whole]
        return column_runs(
            len(data),
            lambda start: self._run(data, start),
            MIN_ROWS_PER_CUT,
            "members change their kind",
        )

    def _whole(self, data: Sequence[bytes | None]) -> ColumnRun | None:
        """Read all messages by the native decoder; None: they are not of the shape that is
        known."""
        if self._native is None:
            return None
        try:
            column, failures = self._native.read(data)
        except NotColumnar:
            return None
        return ColumnRun(0, len(data), column, failures)

    def _run(self, data: Sequence[bytes | None], start: int) -> ColumnRun:
        messages = [NULL_TEXT if m is None else m for m in (data[start:] if start else data)]
        for widenings in range(MAX_WIDENINGS):
            failures: dict[int, Exception] = {}
            reader = self._reader
            rows = self._rows(messages, failures, ahead=1 << widenings)
            if rows is not None:
                return ColumnRun(
                    start,
                    start + len(rows),
                    _column(reader, rows, failures),
                    {start + index: error for index, error in failures.items()},
                )
        raise NotColumnar("objects have ever new members")

    def _rows(
        self, messages: Sequence[bytes], failures: dict[int, Exception], ahead: int
    ) -> list[Any] | None:
        """Decode up to the end or a change of kind; None: the shape is another one now, so once
        more."""
        rows: list[Any] = []
        waiting = iter(messages)
        decode = self._decoder.decode
        while True:
            try:
                # what was decoded before an error stays in the list
                rows.extend(map(decode, waiting))
                return rows
            except REFUSED:
                index = len(rows)
            try:
                value = read_json(messages[index], levels=MAX_NESTING)
            except DataError as error:
                failures[index] = error
                rows.append(None)
                continue
            try:
                widened = self._shape.widen(value)
            except NotColumnar:
                self._start_over(None)  # a refused value has widened the shape in part
                self._start_over(value)
                return rows if index else None
            if widened:
                self._look_at(islice(messages, index + 1, index + 1 + ahead))
                self._compile()
                return None
            # text that Jackson takes and msgspec does not
            rows.append(msgspec.convert(value, self._reader.type))

    def _look_at(self, messages: Iterable[bytes]) -> None:
        for message in messages:
            try:
                self._shape.widen(read_json(message, levels=MAX_NESTING))
            except (DataError, NotColumnar):  # its own turn will come
                return


def _column(reader: Reader, rows: Sequence[Any], failures: Mapping[int, Exception]) -> Column:
    import pyarrow as pa

    tombstone = None
    if not all(rows):  # objects are true
        nulls = list(map(operator.is_, rows, repeat(None)))
        for index in failures:
            nulls[index] = False
        tombstone = pa.array(nulls, pa.bool_()) if any(nulls) else None
    return column_of(reader, rows, tombstone)
