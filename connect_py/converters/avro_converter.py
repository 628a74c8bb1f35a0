"""`io.confluent.connect.avro.AvroConverter`, reading."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar, Final

from connect_py.api.batch import Column
from connect_py.api.config import ConfigDef, Importance, Type
from connect_py.api.converter import ColumnRun, Converter
from connect_py.api.errors import ConfigError, DataError, NotColumnar
from connect_py.api.record import RawHeaders
from connect_py.api.schema import NULL, Schema, SchemaAndValue, Value
from connect_py.converters.avro_body import AvroBodyReader
from connect_py.converters.avro_columns import ID_PREFIX, AvroColumns
from connect_py.converters.avro_schema import AvroType, avro_type
from connect_py.converters.schema_registry import CONFIG_DEF, SchemaRegistry

if TYPE_CHECKING:
    import pyarrow as pa

UNKNOWN_MAGIC: Final = "Unknown magic byte!"
_GUID_PREFIX: Final = 17  # bytes: 1 and the GUID
_FREE_CUTS: Final = 8  # per call
_MIN_PART: Final = 16  # messages that are converted by the reference form when one of them is in doubt
_MIN_ROWS_PER_CUT: Final = 20  # beyond that, on average: more cuts cost more than rows do


class AvroConverter(Converter):
    """Avro in Confluent's wire format; schemas come from a registry."""

    config_def: ClassVar[ConfigDef] = (
        ConfigDef(CONFIG_DEF.keys.values())
        .define("enhanced.avro.schema.support", Type.BOOLEAN, default=False, importance=Importance.MEDIUM,
                doc="Name the branches of unions by their full names.")
        .define("schema.backup.enabled", Type.BOOLEAN, default=False, importance=Importance.LOW,
                doc="Not supported; must be false.")
    )  # fmt: skip

    def configure(self, configs: Mapping[str, str], *, is_key: bool = False) -> None:
        parsed = self.config_def.parse(configs)
        if parsed["schema.backup.enabled"]:
            raise ConfigError("schema.backup.enabled", "is not supported")
        self._enhanced: bool = parsed["enhanced.avro.schema.support"]
        self._side = "key" if is_key else "value"
        self._registry = SchemaRegistry(configs)
        self._readers: dict[tuple[str, bytes], _AvroReader] = {}

    def to_connect(self, topic: str, data: bytes | None, headers: RawHeaders = ()) -> SchemaAndValue:
        if data is None:
            return NULL
        head, body = self._split(data, headers)
        try:
            reader = self._reader(topic, head)
            return SchemaAndValue(reader.avro.schema, reader.value(body))
        except DataError as error:
            raise DataError(f"Failed to deserialize data for topic {topic} to Avro: ") from error

    def _split(self, data: bytes, headers: RawHeaders) -> tuple[bytes, bytes]:
        """Return what names the schema, and the body."""
        name = f"__{self._side}_schema_id"
        for key, value in headers:
            if key == name and value:
                return value, data
        return data[: _prefix_length(data)], data[_prefix_length(data) :]

    def _reader(self, topic: str, head: bytes) -> _AvroReader:
        reader = self._readers.get((topic, head))
        if reader is None:
            reader = self._readers[topic, head] = self._make_reader(topic, head)
        return reader

    def _make_reader(self, topic: str, head: bytes) -> _AvroReader:
        version = None
        if len(head) == ID_PREFIX and head[0] == 0:
            schema_id = int.from_bytes(head[1:], "big")
            registered = self._registry.by_id(schema_id)
            version = self._registry.version(f"{topic}-{self._side}", schema_id)
        elif len(head) == _GUID_PREFIX and head[0] == 1:
            registered = self._registry.by_guid(str(uuid.UUID(bytes=head[1:])))
        else:
            raise DataError(UNKNOWN_MAGIC)
        if registered.kind != "AVRO":
            raise DataError(f"the schema is of type {registered.kind}, not AVRO")
        return _AvroReader(avro_type(registered.text, registered.references, version, enhanced=self._enhanced))

    def from_connect(self, topic: str, schema: Schema | None, value: Value, headers: RawHeaders = ()) -> bytes | None:
        if value is None:
            return None
        raise DataError("AvroConverter reads only: writing Avro is not supported yet")

    def to_batch(
        self, topic: str, data: Sequence[bytes | None], headers: Sequence[RawHeaders] | None = None
    ) -> Sequence[ColumnRun]:
        if headers is not None and any(headers) and self._ids_in_headers(headers):
            raise NotColumnar("schema ids in headers")
        whole = self._one_run(topic, data)
        if whole is not None:
            return [whole]
        starts = [None if m is None else m[:ID_PREFIX] for m in data]
        runs: list[ColumnRun] = []
        start = 0
        while start < len(data):
            if len(runs) > _FREE_CUTS + len(data) // _MIN_ROWS_PER_CUT:
                raise NotColumnar("schemas change too often")
            runs.append(self._run(topic, data, starts, start))
            start = runs[-1].stop
        return runs

    def _ids_in_headers(self, headers: Sequence[RawHeaders]) -> bool:
        name = f"__{self._side}_schema_id"
        return any(key == name for row in headers for key, _ in row)

    def _one_run(self, topic: str, data: Sequence[bytes | None]) -> ColumnRun | None:
        """Convert all messages at once if they are of one schema and none is damaged, else return None."""
        first = next((m for m in data if m is not None), b"")
        if len(first) < ID_PREFIX or first[0]:
            return None
        try:
            reader = self._reader(topic, first[:ID_PREFIX])
            column, tombstone = reader.columns.read(data)
        except (DataError, NotColumnar):
            return None
        return ColumnRun(0, len(data), Column(reader.avro.schema, column, tombstone))

    def _run(
        self, topic: str, data: Sequence[bytes | None], starts: Sequence[bytes | None], start: int
    ) -> ColumnRun:  # fmt: skip
        """Convert messages from `start` on, up to another schema."""
        head: bytes | None = None
        reader: _AvroReader | None = None
        failures: dict[int, Exception] = {}
        stop = start
        for stop in range(start, len(data)):
            found = starts[stop]
            if found is None or found == head:
                continue
            try:
                other = self._reader(topic, found if found[:1] != b"\1" else (data[stop] or b"")[:_GUID_PREFIX])
            except DataError:
                try:
                    self.to_connect(topic, data[stop])
                except DataError as error:
                    failures[stop] = error
                continue
            if found[:1] == b"\1":
                raise NotColumnar("schemas by GUID")
            if reader is not None and other is not reader:
                break
            head, reader = found, other
        else:
            stop = len(data)
        return self._column_run(topic, data, start, stop, reader, failures)

    def _column_run(
        self,
        topic: str,
        data: Sequence[bytes | None],
        start: int,
        stop: int,
        reader: _AvroReader | None,
        failures: dict[int, Exception],
    ) -> ColumnRun:
        import pyarrow as pa

        part: list[bytes | None] = list(data[start:stop])
        nulls = [m is None for m in part]
        tombstone = pa.array(nulls, pa.bool_()) if any(nulls) else None
        if reader is None:
            return ColumnRun(start, stop, Column(None, pa.nulls(stop - start), tombstone), failures)
        for index in failures:
            part[index - start] = None
        column = self._column(topic, part, reader, start, failures)
        return ColumnRun(start, stop, Column(reader.avro.schema, column, tombstone), failures)

    def _column(
        self, topic: str, part: Sequence[bytes | None], reader: _AvroReader, start: int, failures: dict[int, Exception]
    ) -> pa.Array:
        """Convert messages of one schema; those in doubt, and few around them, by the reference form."""
        import pyarrow as pa

        from connect_py.api import arrow

        if reader.columns.possible:
            if part.count(None) == len(part):
                return pa.nulls(len(part), arrow.arrow_type(reader.avro.schema))
            try:
                return reader.columns.read(part)[0]
            except NotColumnar:
                if len(part) > _MIN_PART:
                    middle = len(part) // 2
                    left = self._column(topic, part[:middle], reader, start, failures)
                    return pa.concat_arrays([
                        left, self._column(topic, part[middle:], reader, start + middle, failures)
                    ])  # fmt: skip
        values: list[Value] = []
        for index, message in enumerate(part, start):
            try:
                values.append(self.to_connect(topic, message).value)
            except DataError as error:
                failures[index] = error
                values.append(None)
        return arrow.to_array(reader.avro.schema, values)

    def close(self) -> None:
        self._registry.close()


def _prefix_length(data: bytes) -> int:
    return _GUID_PREFIX if data[:1] == b"\1" else ID_PREFIX


class _AvroReader:
    """Decodes bodies of one schema: `value` is the reference, `columns` the fast form."""

    def __init__(self, avro: AvroType) -> None:
        self.avro = avro
        self._body = AvroBodyReader(avro.plain)
        self.columns = AvroColumns(avro)

    def value(self, body: bytes) -> Value:
        decoded = self._body.read(body)
        return None if decoded is None else self.avro.value(self.avro.schema, decoded)
