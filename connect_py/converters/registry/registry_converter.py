"""Base class for converters that use a schema registry and Confluent's wire format."""

from __future__ import annotations

import uuid
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, ClassVar, Final, Protocol

from connect_py.api.batch import Column
from connect_py.api.config import ConfigDef, Importance, Type
from connect_py.api.converter import ColumnRun, Converter
from connect_py.api.errors import ConfigError, DataError, NotColumnar
from connect_py.api.record import MutableHeaders, RawHeaders
from connect_py.api.schema import NULL, Schema, SchemaAndValue, Value
from connect_py.converters.column_runs import column_of_rows, column_runs, replace_rows
from connect_py.converters.registry.bounded_dict import BoundedDict
from connect_py.converters.registry.registry_client import CONFIG_DEF as CLIENT
from connect_py.converters.registry.registry_writer import CONFIG_DEF as WRITER
from connect_py.converters.registry.registry_writer import RegistryWriter, Target
from connect_py.converters.registry.schema_registry import RegisteredSchema, SchemaRegistry

if TYPE_CHECKING:
    import pyarrow as pa

ID_PREFIX: Final = 5  # bytes before a message body: 0 and the schema ID
GUID_PREFIX: Final = 17  # bytes before a message body: 1 and the GUID
UNKNOWN_MAGIC: Final = "Unknown magic byte!"

# start of a substitute ID, which replaces the GUID from a header in columnar conversion; as a
# schema ID, it would be negative, and registries do not assign negative IDs
_SUBSTITUTE_HEAD: Final = b"\0\xff"
_SUBSTITUTES: Final = 1 << 24
_DUAL_DESERIALIZER: Final = "DualSchemaIdDeserializer"
_PREFIX_DESERIALIZER: Final = "PrefixSchemaIdDeserializer"
_MIN_PART: Final = 16  # messages; smaller parts that have no columnar form are converted row by row
_MIN_ROWS_PER_CUT: Final = 20

CONFIG_DEF: Final = (
    ConfigDef([*CLIENT.keys.values(), *WRITER.keys.values()])
    .define(
        "schemas.cache.config",
        Type.INT,
        default=1000,
        importance=Importance.LOW,
        doc="Number of schemas to cache, separately for reading and for writing.",
    )
    .define(
        "schema.backup.enabled",
        Type.BOOLEAN,
        default=False,
        importance=Importance.LOW,
        doc="Not supported. Must be false.",
    )
    .define(
        "rule.executors",
        Type.LIST,
        default="",
        importance=Importance.LOW,
        doc="Ignored. Schemas with active rules are rejected.",
    )
    .define(
        "rule.actions",
        Type.LIST,
        default="",
        importance=Importance.LOW,
        doc="Ignored. See rule.executors.",
    )
    .define(
        "rule.service.loader.enable",
        Type.BOOLEAN,
        default=True,
        importance=Importance.LOW,
        doc="Ignored. See rule.executors.",
    )
)
for _side in ("key", "value"):
    CONFIG_DEF.define(
        f"{_side}.schema.id.deserializer",
        Type.STRING,
        default=_DUAL_DESERIALIZER,
        importance=Importance.LOW,
        doc=f"{_DUAL_DESERIALIZER} reads schema IDs from headers and from messages. "
        f"{_PREFIX_DESERIALIZER} reads them only from messages.",
    )


def _reads_headers(configs: Mapping[str, str], side: str) -> bool:
    key = f"{side}.schema.id.deserializer"
    name = CONFIG_DEF.parse(configs)[key].rpartition(".")[2]
    if name not in (_DUAL_DESERIALIZER, _PREFIX_DESERIALIZER):
        raise ConfigError(
            key,
            f"unknown deserializer {name}: expected {_DUAL_DESERIALIZER} or {_PREFIX_DESERIALIZER}",
        )
    return bool(name == _DUAL_DESERIALIZER)


class MessageReader(ABC):
    """Reads messages with one schema, row by row (`value`) or as columns (`columns`)."""

    schema: Schema
    columnar: bool  # False if `columns` always raises NotColumnar

    def __init__(self, prefix: bytes) -> None:
        """Create a reader for messages with this prefix, which identifies the schema."""
        self._prefix = prefix

    @abstractmethod
    def value(self, body: bytes) -> Value:
        """Deserialize a message body.

        Raises:
            DataError: The body does not match the schema.
        """

    @abstractmethod
    def columns(self, messages: Sequence[bytes | None]) -> tuple[pa.Array, Sequence[int]]:
        """Convert messages, including their prefixes, to a column.

        At least one message is not null.

        Returns:
            The column, and the indexes of the rows that must be converted one at a time with
            `value`. These rows are null.

        Raises:
            NotColumnar: Messages have different schemas, or columns cannot represent a value.
        """

    def bodies(self, messages: Sequence[bytes | None]) -> list[bytes | None]:
        """Return the messages without their prefixes.

        Raises:
            NotColumnar: A message has a different prefix.
        """
        if not all(m is None or m.startswith(self._prefix) for m in messages):
            raise NotColumnar("schemas differ")
        start = len(self._prefix)
        return [None if m is None else m[start:] for m in messages]


class MessageWriter(Protocol):
    """Writes values that have one Connect schema."""

    text: str  # the schema to register
    name: str | None  # name of the record, which is part of some subject names
    indexes: bytes  # bytes between the schema ID and the body

    def write(self, value: Value) -> bytes:
        """Serialize a value to a message body.

        Raises:
            DataError: The value does not match its schema.
        """

    def by(self, registered: RegisteredSchema, *, strict: bool) -> MessageWriter:
        """Return a writer that writes the same values with another schema.

        Args:
            registered: The other schema.
            strict: True to reject values that do not match it.

        Raises:
            DataError: The schema is invalid.
        """


class RegistryConverter(Converter):
    """Base class for converters that use Confluent's wire format.

    The schema ID precedes the message body or is in a header.
    """

    kind: ClassVar[str]  # AVRO, JSON, or PROTOBUF
    label: ClassVar[str]  # name of the format in error messages

    def configure(self, configs: Mapping[str, str], *, is_key: bool = False) -> None:
        """Create the registry client. Subclasses parse `configs` before they call this method."""
        if CONFIG_DEF.parse(configs)["schema.backup.enabled"]:
            raise ConfigError("schema.backup.enabled", "is not supported")
        self._side = "key" if is_key else "value"
        self._header = f"__{self._side}_schema_id"
        self._registry = SchemaRegistry(configs)
        self._reads_headers = _reads_headers(configs, self._side)
        capacity = self._capacity = max(1, CONFIG_DEF.parse(configs)["schemas.cache.config"])
        self._readers = BoundedDict[tuple[str, bytes], MessageReader](capacity)
        # errors for schemas that cannot be read
        self._refusals = BoundedDict[tuple[str, bytes], DataError](capacity)
        # substitute IDs, keyed by the GUID from a header; the most recently used entry is last
        self._substitutes: dict[bytes, bytes] = {}
        self._guids: dict[bytes, bytes] = {}  # GUIDs, keyed by substitute ID
        self._substitute_count = 0
        self._ids = RegistryWriter(self._registry, configs, self._side, self.kind, capacity)
        self._writers = BoundedDict[Schema, MessageWriter](capacity)
        self._writers_by = BoundedDict[tuple[Schema, bytes], MessageWriter](capacity)

    def prefix_length(self, data: bytes) -> int:
        """Return the number of bytes that identify the schema in a message or header.

        Raises:
            DataError: The bytes do not identify a schema.
        """
        return GUID_PREFIX if data[:1] == b"\1" else ID_PREFIX

    @abstractmethod
    def make_reader(
        self, registered: RegisteredSchema, version: int | None, prefix: bytes, rest: bytes
    ) -> MessageReader:
        """Create a reader for messages with a schema.

        Args:
            registered: The schema.
            version: Version in the topic's subject, or None if the subject does not contain the
                schema.
            prefix: The bytes before each message body.
            rest: The bytes in the prefix that follow the ID.

        Raises:
            DataError: The schema is invalid or has no equivalent in Connect.
        """

    @abstractmethod
    def make_writer(self, schema: Schema) -> MessageWriter:
        """Create a writer for values with a schema.

        Raises:
            DataError: The schema has no equivalent in the format.
        """

    def schema_of(self, value: Value) -> Schema:
        """Infer the schema of a schemaless value.

        Raises:
            DataError: No schema can be inferred from the value.
        """
        raise DataError(f"{self.label} cannot be written without a schema")

    def from_connect(
        self, topic: str, schema: Schema | None, value: Value, headers: MutableHeaders | None = None
    ) -> bytes | None:
        if value is None:
            return None
        schema = schema or self.schema_of(value)
        writer = self._writers.get(schema)
        if writer is None:
            writer = self._writers[schema] = self.make_writer(schema)
        target = self._ids.target(topic, writer.name, writer.text)
        if target.schema is not None:
            writer = self._writer_by(schema, writer, target, target.schema)
        body = writer.write(value)
        if not self._ids.in_header:
            return target.head + writer.indexes + body
        if headers is None:
            raise DataError(
                "the schema ID is written to a header, but headers are not supported here"
            )
        # a header of the consumed record may contain another ID
        other_headers = [header for header in headers if header[0] != self._header]
        headers[:] = [*other_headers, (self._header, target.head + writer.indexes)]
        return body

    def _writer_by(
        self, schema: Schema, writer: MessageWriter, target: Target, registered: RegisteredSchema
    ) -> MessageWriter:
        result = self._writers_by.get((schema, target.head))
        if result is None:
            self._check_kind(registered)
            result = writer.by(registered, strict=target.strict)
            self._writers_by[schema, target.head] = result
        return result

    def _check_kind(self, registered: RegisteredSchema) -> None:
        if registered.kind != self.kind:
            raise DataError(f"the schema is of type {registered.kind}, not {self.kind}")

    def to_connect(
        self, topic: str, data: bytes | None, headers: RawHeaders = ()
    ) -> SchemaAndValue:
        if data is None:
            return NULL
        try:
            head, body = self._split(data, headers)
            reader = self._reader(topic, head)
            return SchemaAndValue(reader.schema, reader.value(body))
        except DataError as error:
            raise DataError(
                f"Failed to deserialize data for topic {topic} to {self.label}: "
            ) from error

    def _split(self, data: bytes, headers: RawHeaders) -> tuple[bytes, bytes]:
        """Return the bytes that identify the schema, and the body."""
        head = self._head_in(headers)
        if head is not None:
            return head, data
        length = self.prefix_length(data)
        return data[:length], data[length:]

    def _head_in(self, headers: RawHeaders) -> bytes | None:
        """Return the value of the last header that identifies the schema, or None."""
        if not self._reads_headers:
            return None
        return next(
            (value for key, value in reversed(headers) if key == self._header and value), None
        )

    def _reader(self, topic: str, head: bytes) -> MessageReader:
        reader = self._readers.get((topic, head))
        if reader is None:
            refusal = self._refusals.get((topic, head))
            if refusal is not None:
                # otherwise, the traceback would grow with each raise
                raise refusal.with_traceback(None)
            reader = self._readers[topic, head] = self._new_reader(topic, head)
        return reader

    def _new_reader(self, topic: str, head: bytes) -> MessageReader:
        version = None
        name = self._guids.get(head, head)
        if len(name) >= ID_PREFIX and name[0] == 0:
            schema_id = int.from_bytes(name[1:ID_PREFIX], "big")
            rest = name[ID_PREFIX:]
            registered = self._registry.by_id(schema_id)
            version = self._registry.version(f"{topic}-{self._side}", schema_id)
        elif len(name) >= GUID_PREFIX and name[0] == 1:
            rest = name[GUID_PREFIX:]
            registered = self._registry.by_guid(str(uuid.UUID(bytes=name[1:GUID_PREFIX])))
        else:
            raise DataError(UNKNOWN_MAGIC)
        self._check_kind(registered)
        try:
            return self.make_reader(registered, version, head, rest)
        except RecursionError:
            refusal = DataError("The schema is nested too deeply")
        except DataError as error:
            refusal = error
        # cache the error, because parsing the schema again for each message would be slow
        self._refusals[topic, head] = refusal
        raise refusal

    def to_batch(
        self, topic: str, data: Sequence[bytes | None], headers: Sequence[RawHeaders] | None = None
    ) -> Sequence[ColumnRun]:
        if headers is not None and any(headers) and self._has_id_headers(headers):
            data = self._prefixed(data, headers)
        run = self._single_run(topic, data)
        if run is not None:
            return [run]
        heads = [None if m is None else self._head(m) for m in data]
        return column_runs(
            len(data),
            lambda start: self._run(topic, data, heads, start),
            _MIN_ROWS_PER_CUT,
            "schemas change",
        )

    def _head(self, message: bytes) -> bytes:
        """Return the bytes that identify the schema, or the whole message if it is invalid."""
        try:
            return message[: self.prefix_length(message)]
        except DataError:
            return message

    def _has_id_headers(self, headers: Sequence[RawHeaders]) -> bool:
        return self._reads_headers and any(key == self._header for row in headers for key, _ in row)

    def _prefixed(
        self, data: Sequence[bytes | None], headers: Sequence[RawHeaders]
    ) -> list[bytes | None]:
        """Return the messages with the schema IDs from the headers prepended.

        Raises:
            NotColumnar: A header does not identify a schema, a message starts with a substitute ID,
                or there are more schemas than fit into the cache.
        """
        heads = [self._head_in(row) for row in headers]
        if len(set(heads)) > self._capacity + (None in heads):
            raise NotColumnar("there are more schemas than fit into the cache")
        try:
            ids = {head: self._id_of(head) for head in set(heads) if head is not None}
        except DataError as error:
            raise NotColumnar("a header does not identify a schema") from error
        prefixes = [b"" if head is None else ids[head] for head in heads]
        if any(
            m is not None and not prefix and m.startswith(_SUBSTITUTE_HEAD)
            for m, prefix in zip(data, prefixes, strict=True)
        ):
            raise NotColumnar("a schema ID is negative")
        return [None if m is None else prefix + m for m, prefix in zip(data, prefixes, strict=True)]

    def _id_of(self, head: bytes) -> bytes:
        """Return a message prefix for a header's value. Replace a GUID with a substitute ID."""
        if self.prefix_length(head) != len(head) or head.startswith(_SUBSTITUTE_HEAD):
            raise DataError("the header does not identify a schema")
        if head[:1] != b"\1":
            return head
        substitute = self._substitutes.pop(head, None)
        if substitute is None:
            if len(self._substitutes) >= self._capacity:
                del self._guids[self._substitutes.pop(next(iter(self._substitutes)))]
            number = self._substitute_count % _SUBSTITUTES
            self._substitute_count += 1
            substitute = _SUBSTITUTE_HEAD + number.to_bytes(3, "big") + head[GUID_PREFIX:]
            self._guids[substitute] = head
        self._substitutes[head] = substitute
        return substitute

    def _single_run(self, topic: str, data: Sequence[bytes | None]) -> ColumnRun | None:
        """Return a run of all messages, or None if they cannot be converted as one run."""
        first = next((m for m in data if m is not None), b"")
        if len(first) < ID_PREFIX or first[0]:
            return None
        failures: dict[int, Exception] = {}
        try:
            reader = self._reader(topic, first[: self.prefix_length(first)])
            if not reader.columnar:
                return None
            column = self._columns(topic, data, reader, 0, failures)
        except (DataError, NotColumnar):
            return None
        return ColumnRun(0, len(data), Column(reader.schema, column, _nulls(data)), failures)

    def _columns(
        self,
        topic: str,
        part: Sequence[bytes | None],
        reader: MessageReader,
        start: int,
        failures: dict[int, Exception],
    ) -> pa.Array:
        """Convert messages with one schema to a column, and add errors to `failures`.

        Raises:
            NotColumnar: Messages have different schemas, or columns cannot represent a value.
        """
        column, odd = reader.columns(part)
        odd_rows = {row: part[row] for row in odd}
        values = self._row_values(topic, odd_rows, reader, start, failures)
        column, _ = replace_rows(reader.schema, column, values)
        return column

    def _row_values(
        self,
        topic: str,
        messages: Mapping[int, bytes | None],
        reader: MessageReader,
        start: int,
        failures: dict[int, Exception],
    ) -> dict[int, Value]:
        """Convert messages row by row, and add errors to `failures`.

        Raises:
            NotColumnar: A message has another schema or is equivalent to a null message.
        """
        values: dict[int, Value] = {}
        new_failures: dict[int, Exception] = {}
        for row, message in messages.items():
            try:
                result = self.to_connect(topic, message)
            except DataError as error:
                new_failures[start + row] = error
                continue
            if message is not None and result.schema != reader.schema:
                raise NotColumnar("a message has another schema or is null")
            values[row] = result.value
        failures |= new_failures
        return values

    def _run(
        self, topic: str, data: Sequence[bytes | None], heads: Sequence[bytes | None], start: int
    ) -> ColumnRun:
        """Return the run from a message up to the next schema change."""
        run_head: bytes | None = None
        reader: MessageReader | None = None
        failures: dict[int, Exception] = {}
        stop = start
        for stop in range(start, len(data)):
            head = heads[stop]
            if head is None or head == run_head:
                continue
            try:
                next_reader = self._reader(topic, head)
            except DataError:
                try:
                    self.to_connect(topic, data[stop])
                except DataError as error:
                    failures[stop] = error
                continue
            if head[:1] == b"\1":
                raise NotColumnar("schemas are identified by GUID")
            if reader is not None and next_reader is not reader:
                break
            run_head, reader = head, next_reader
        else:
            stop = len(data)
        return self._column_run(topic, data, start, stop, reader, failures)

    def _column_run(
        self,
        topic: str,
        data: Sequence[bytes | None],
        start: int,
        stop: int,
        reader: MessageReader | None,
        failures: dict[int, Exception],
    ) -> ColumnRun:
        import pyarrow as pa

        part: list[bytes | None] = list(data[start:stop])
        tombstone = _nulls(part)
        if reader is None:
            return ColumnRun(start, stop, Column(None, pa.nulls(stop - start), tombstone), failures)
        for index in failures:
            part[index - start] = None
        column = self._column(topic, part, reader, start, failures)
        return ColumnRun(start, stop, Column(reader.schema, column, tombstone), failures)

    def _column(
        self,
        topic: str,
        part: Sequence[bytes | None],
        reader: MessageReader,
        start: int,
        failures: dict[int, Exception],
    ) -> pa.Array:
        """Convert messages with one schema to a column.

        If columns cannot represent a message, it is converted row by row, together with a few
        adjacent messages.
        """
        import pyarrow as pa

        from connect_py.columns import arrow

        if reader.columnar:
            if part.count(None) == len(part):
                return pa.nulls(len(part), arrow.arrow_type(reader.schema))
            with suppress(NotColumnar):
                return self._columns(topic, part, reader, start, failures)
            if len(part) > _MIN_PART:
                middle = len(part) // 2
                first = self._column(topic, part[:middle], reader, start, failures)
                return pa.concat_arrays(
                    [first, self._column(topic, part[middle:], reader, start + middle, failures)]
                )
        values = self._row_values(topic, dict(enumerate(part)), reader, start, failures)
        column, _ = column_of_rows(reader.schema, [values.get(row) for row in range(len(part))])
        return column

    def close(self) -> None:
        self._registry.close()


def _nulls(messages: Sequence[bytes | None]) -> pa.BooleanArray | None:
    """Return a mask of the null messages, or None if no message is null."""
    import pyarrow as pa

    return pa.array([m is None for m in messages], pa.bool_()) if messages.count(None) else None
