"""What the converters with a schema registry share: the wire format, readers by schema, columns
with their cuts."""

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
from connect_py.converters.bounded_dict import BoundedDict
from connect_py.converters.column_runs import column_runs
from connect_py.converters.registry_client import CONFIG_DEF as CLIENT
from connect_py.converters.registry_writer import CONFIG_DEF as WRITING
from connect_py.converters.registry_writer import RegistryWriter, Target
from connect_py.converters.schema_registry import RegisteredSchema, SchemaRegistry

if TYPE_CHECKING:
    import pyarrow as pa

ID_PREFIX: Final = 5  # bytes of a message before its body: 0 and the schema's id
GUID_PREFIX: Final = 17  # bytes: 1 and the GUID
_GUID_STAND_IN: Final = b"\0\xff"  # how negative ids begin
_STAND_INS: Final = 1 << 24
UNKNOWN_MAGIC: Final = "Unknown magic byte!"
_DUAL_DESERIALIZER: Final = "DualSchemaIdDeserializer"
_PREFIX_DESERIALIZER: Final = "PrefixSchemaIdDeserializer"
_MAX_DAMAGED: Final = 8  # messages of one call that are looked at by themselves
# messages that are converted by the reference form when one of them is in doubt
_MIN_PART: Final = 16
_MIN_ROWS_PER_CUT: Final = 20

CONFIG_DEF: Final = (
    ConfigDef([*CLIENT.keys.values(), *WRITING.keys.values()])
    .define(
        "schemas.cache.config",
        Type.INT,
        default=1000,
        importance=Importance.LOW,
        doc="How many schemas are kept ready in memory, for reading and for writing.",
    )
    .define(
        "schema.backup.enabled",
        Type.BOOLEAN,
        default=False,
        importance=Importance.LOW,
        doc="Not supported; must be false.",
    )
    .define(
        "rule.executors",
        Type.LIST,
        default="",
        importance=Importance.LOW,
        doc="Accepted; a schema with rules that would have to run is refused.",
    )
    .define(
        "rule.actions",
        Type.LIST,
        default="",
        importance=Importance.LOW,
        doc="Accepted, as rule.executors.",
    )
    .define(
        "rule.service.loader.enable",
        Type.BOOLEAN,
        default=True,
        importance=Importance.LOW,
        doc="Accepted, as rule.executors.",
    )
)
for _side in ("key", "value"):
    CONFIG_DEF.define(
        f"{_side}.schema.id.deserializer",
        Type.STRING,
        default=_DUAL_DESERIALIZER,
        importance=Importance.LOW,
        doc=f"{_DUAL_DESERIALIZER} looks at headers first, {_PREFIX_DESERIALIZER} does not.",
    )


def _looks_at_headers(configs: Mapping[str, str], side: str) -> bool:
    key = f"{side}.schema.id.deserializer"
    name = CONFIG_DEF.parse(configs)[key].rpartition(".")[2]
    if name not in (_DUAL_DESERIALIZER, _PREFIX_DESERIALIZER):
        raise ConfigError(
            key, f"{name} is unknown; there are {_DUAL_DESERIALIZER} and {_PREFIX_DESERIALIZER}"
        )
    return bool(name == _DUAL_DESERIALIZER)


class DamagedMessage(NotColumnar):
    """Some messages keep all of them from being columns."""

    def __init__(self, places: Sequence[int], why: str, others: pa.Array | None = None) -> None:
        """It is one of those at `places`, or each of them where `others` is given: the column with
        nulls there."""
        super().__init__(why)
        self.places = places
        self.others = others


class MessageReader(ABC):
    """Reads the messages of one schema: `value` is the reference, `columns` the fast form."""

    schema: Schema
    columnar: bool  # whether `columns` is worth asking
    prefix: bytes  # what names the schema in front of each body; the converter sets it

    @abstractmethod
    def value(self, body: bytes) -> Value:
        """Read what follows the schema's id. DataError: it is not of this schema."""

    @abstractmethod
    def columns(self, messages: Sequence[bytes | None]) -> pa.Array:
        """Make the column of whole messages, at least one of them not null.

        Raises: DamagedMessage: This message is damaged, or looks so; the reference form will say.
            NotColumnar: A message has another id or is damaged (the reference form will say which
            one).
        """

    def bodies(self, messages: Sequence[bytes | None]) -> list[bytes | None]:
        """Cut the prefixes off. NotColumnar: a message has another one."""
        if not all(m is None or m.startswith(self.prefix) for m in messages):
            raise NotColumnar("schemas differ")
        start = len(self.prefix)
        return [None if m is None else m[start:] for m in messages]


class MessageWriter(Protocol):
    """Writes the values of one Connect schema."""

    text: str  # of the schema to register
    name: str | None  # of the record, which some subjects are named after
    indexes: bytes  # what follows the schema's id, before the body

    def write(self, value: Value) -> bytes:
        """Write the body. DataError: the value does not fit its schema."""

    def by(self, registered: RegisteredSchema, *, strict: bool) -> MessageWriter:
        """What writes the same values by another schema.

        `strict` refuses values that have no place there.

        Raises:
            DataError: It is not a schema.
        """


class RegistryConverter(Converter):
    """Confluent's wire format: what names the schema stands before the body, or in a header."""

    kind: ClassVar[str]  # AVRO, JSON or PROTOBUF
    label: ClassVar[str]  # as messages name it

    def configure(self, configs: Mapping[str, str], *, is_key: bool = False) -> None:
        """Open the registry; subclasses parse `configs` first."""
        if CONFIG_DEF.parse(configs)["schema.backup.enabled"]:
            raise ConfigError("schema.backup.enabled", "is not supported")
        self._side = "key" if is_key else "value"
        self._header = f"__{self._side}_schema_id"
        self._registry = SchemaRegistry(configs)
        self._looks_at_headers = _looks_at_headers(configs, self._side)
        capacity = self._capacity = max(1, CONFIG_DEF.parse(configs)["schemas.cache.config"])
        self._readers = BoundedDict[tuple[str, bytes], MessageReader](capacity)
        # schemas that no reader can be made of
        self._refusals = BoundedDict[tuple[str, bytes], DataError](capacity)
        self._stood_for: dict[bytes, bytes] = {}  # by an id that is none: the GUID in a header
        self._stand_ins: dict[
            bytes, bytes
        ] = {}  # the other way round; what was used last stands last
        self._stand_ins_made = 0
        self._ids = RegistryWriter(self._registry, configs, self._side, self.kind, capacity)
        self._writers = BoundedDict[Schema, MessageWriter](capacity)
        self._writers_by = BoundedDict[tuple[Schema, bytes], MessageWriter](capacity)

    def prefix_length(self, data: bytes) -> int:
        """Return how many bytes name the schema at the start of a message or header; DataError:
        they do not."""
        return GUID_PREFIX if data[:1] == b"\1" else ID_PREFIX

    @abstractmethod
    def make_reader(
        self, registered: RegisteredSchema, version: int | None, rest: bytes
    ) -> MessageReader:
        """Make what reads messages of a schema.

        `version` is its subject's, if known; `rest` what `prefix_length` counts beyond the id.

        Raises:
            DataError: It is not a schema, or one without a Connect form.
        """

    @abstractmethod
    def make_writer(self, schema: Schema) -> MessageWriter:
        """Make what writes values of a schema. DataError: there is no form for it."""

    def schema_of(self, value: Value) -> Schema:
        """The schema of a value that has none. DataError: it needs one."""
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
                "the schema's id stands in a header, and there is no place for headers here"
            )
        # a message that was read has an older one
        mine = [header for header in headers if header[0] != self._header]
        headers[:] = [*mine, (self._header, target.head + writer.indexes)]
        return body

    def _writer_by(
        self, schema: Schema, own: MessageWriter, target: Target, registered: RegisteredSchema
    ) -> MessageWriter:
        made = self._writers_by.get((schema, target.head))
        if made is None:
            if registered.kind != self.kind:
                raise DataError(f"the schema is of type {registered.kind}, not {self.kind}")
            made = self._writers_by[schema, target.head] = own.by(registered, strict=target.strict)
        return made

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
        """Return what names the schema, and what follows."""
        head = self._head_in(headers)
        if head is not None:
            return head, data
        length = self.prefix_length(data)
        return data[:length], data[length:]

    def _head_in(self, headers: RawHeaders) -> bytes | None:
        """What names the schema in a message's headers: the last one of that name."""
        if not self._looks_at_headers:
            return None
        return next(
            (value for key, value in reversed(headers) if key == self._header and value), None
        )

    def _reader(self, topic: str, head: bytes) -> MessageReader:
        reader = self._readers.get((topic, head))
        if reader is None:
            refusal = self._refusals.get((topic, head))
            if refusal is not None:
                raise refusal.with_traceback(None)  # which would grow each time
            reader = self._readers[topic, head] = self._find_reader(topic, head)
        return reader

    def _find_reader(self, topic: str, head: bytes) -> MessageReader:
        version = None
        found = self._stood_for.get(head, head)
        if len(found) >= ID_PREFIX and found[0] == 0:
            schema_id = int.from_bytes(found[1:ID_PREFIX], "big")
            rest = found[ID_PREFIX:]
            registered = self._registry.by_id(schema_id)
            version = self._registry.version(f"{topic}-{self._side}", schema_id)
        elif len(found) >= GUID_PREFIX and found[0] == 1:
            rest = found[GUID_PREFIX:]
            registered = self._registry.by_guid(str(uuid.UUID(bytes=found[1:GUID_PREFIX])))
        else:
            raise DataError(UNKNOWN_MAGIC)
        if registered.kind != self.kind:
            raise DataError(f"the schema is of type {registered.kind}, not {self.kind}")
        try:
            reader = self.make_reader(registered, version, rest)
        except RecursionError:
            refusal = DataError("The schema is nested too deep")
        except DataError as error:
            refusal = error
        else:
            reader.prefix = head
            return reader
        self._refusals[topic, head] = refusal  # each of its messages would take as long
        raise refusal

    def to_batch(
        self, topic: str, data: Sequence[bytes | None], headers: Sequence[RawHeaders] | None = None
    ) -> Sequence[ColumnRun]:
        if headers is not None and any(headers) and self._ids_in_headers(headers):
            data = self._prefixed(data, headers)
        whole = self._one_run(topic, data)
        if whole is not None:
            return [whole]
        starts = [None if m is None else self._start(m) for m in data]
        return column_runs(
            len(data),
            lambda start: self._run(topic, data, starts, start),
            _MIN_ROWS_PER_CUT,
            "schemas change",
        )

    def _start(self, message: bytes) -> bytes:
        """What names its schema, or is in that place."""
        try:
            return message[: self.prefix_length(message)]
        except DataError:
            return message

    def _ids_in_headers(self, headers: Sequence[RawHeaders]) -> bool:
        return self._looks_at_headers and any(
            key == self._header for row in headers for key, _ in row
        )

    def _prefixed(
        self, data: Sequence[bytes | None], headers: Sequence[RawHeaders]
    ) -> list[bytes | None]:
        """The same messages with what names their schemas in front of them.

        Raises: NotColumnar: A header does not name a schema, or a message begins with what stands
            for a GUID; or the
                headers name more schemas than are kept.
        """
        heads = [self._head_in(row) for row in headers]
        if len(set(heads)) > self._capacity + (None in heads):
            raise NotColumnar("more schemas than are kept")
        try:
            stands = {head: self._stand_in(head) for head in set(heads) if head is not None}
        except DataError as error:
            raise NotColumnar("headers that name no schema") from error
        prefixes = [b"" if head is None else stands[head] for head in heads]
        if any(
            m is not None and not p and m.startswith(_GUID_STAND_IN)
            for m, p in zip(data, prefixes, strict=True)
        ):
            raise NotColumnar("an id that no registry gives out")
        return [None if m is None else p + m for m, p in zip(data, prefixes, strict=True)]

    def _stand_in(self, head: bytes) -> bytes:
        """The name of a schema in the form with an id: a GUID gets an id that no registry gives
        out."""
        if self.prefix_length(head) != len(head) or head.startswith(_GUID_STAND_IN):
            raise DataError("no name of a schema")
        if head[:1] != b"\1":
            return head
        stand = self._stand_ins.pop(head, None)
        if stand is None:
            if len(self._stand_ins) >= self._capacity:
                del self._stood_for[self._stand_ins.pop(next(iter(self._stand_ins)))]
            number = self._stand_ins_made % _STAND_INS
            self._stand_ins_made += 1
            stand = _GUID_STAND_IN + number.to_bytes(3, "big") + head[GUID_PREFIX:]
            self._stood_for[stand] = head
        self._stand_ins[head] = stand
        return stand

    def _one_run(self, topic: str, data: Sequence[bytes | None]) -> ColumnRun | None:
        """Convert all messages at once if they are of one schema and none is damaged, else return
        None."""
        first = next((m for m in data if m is not None), b"")
        if len(first) < ID_PREFIX or first[0]:
            return None
        try:
            reader = self._reader(topic, first[: self.prefix_length(first)])
            if not reader.columnar:
                return None
            column = reader.columns(data)
        except DamagedMessage as error:
            # the reference form's errors live on, and must not keep this one's columns in memory
            damaged = error
        except (DataError, NotColumnar):
            return None
        else:
            return ColumnRun(0, len(data), Column(reader.schema, column, _nulls(data)))
        return self._without_damaged(topic, data, reader, damaged)

    def _without_damaged(
        self,
        topic: str,
        data: Sequence[bytes | None],
        reader: MessageReader,
        damaged: DamagedMessage,
    ) -> ColumnRun | None:
        """The same when a few messages are damaged; None: they are many, or the reference form
        takes one of them."""
        part = list(data)
        failures: dict[int, Exception] = {}
        for _ in range(_MAX_DAMAGED):
            found = self._refused(topic, part, damaged.places)
            failures |= found
            if damaged.others is not None:
                whole = ColumnRun(
                    0, len(data), Column(reader.schema, damaged.others, _nulls(data)), failures
                )
                return whole if len(found) == len(damaged.places) else None
            for index in found:
                part[index] = None
            if not found or part.count(None) == len(part):
                return None
            try:
                column = reader.columns(part)
            except DamagedMessage as another:
                damaged = another
            except NotColumnar:
                return None
            else:
                return ColumnRun(
                    0, len(data), Column(reader.schema, column, _nulls(data)), failures
                )
        return None

    def _refused(
        self, topic: str, part: Sequence[bytes | None], places: Sequence[int]
    ) -> dict[int, Exception]:
        """Those of the messages that the reference form refuses."""
        found: dict[int, Exception] = {}
        for index in places:
            if part[index] is not None:
                try:
                    self.to_connect(topic, part[index])
                except DataError as error:
                    found[index] = error
        return found

    def _run(
        self, topic: str, data: Sequence[bytes | None], starts: Sequence[bytes | None], start: int
    ) -> ColumnRun:
        """Convert messages from `start` on, up to another schema."""
        head: bytes | None = None
        reader: MessageReader | None = None
        failures: dict[int, Exception] = {}
        stop = start
        for stop in range(start, len(data)):
            found = starts[stop]
            if found is None or found == head:
                continue
            try:
                other = self._reader(topic, found)
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
        """Convert messages of one schema; those in doubt, and few around them, by the reference
        form."""
        import pyarrow as pa

        from connect_py.columns import arrow

        if reader.columnar:
            if part.count(None) == len(part):
                return pa.nulls(len(part), arrow.arrow_type(reader.schema))
            with suppress(NotColumnar):
                return reader.columns(part)
            if len(part) > _MIN_PART:
                middle = len(part) // 2
                left = self._column(topic, part[:middle], reader, start, failures)
                return pa.concat_arrays(
                    [left, self._column(topic, part[middle:], reader, start + middle, failures)]
                )
        values: list[Value] = []
        for index, message in enumerate(part, start):
            try:
                made = self.to_connect(topic, message)
            except DataError as error:
                failures[index] = error
                values.append(None)
                continue
            if made.schema is None and message is not None:
                raise NotColumnar("a payload that stands for no message")
            values.append(made.value)
        return arrow.to_array(reader.schema, values)

    def close(self) -> None:
        self._registry.close()


def _nulls(messages: Sequence[bytes | None]) -> pa.BooleanArray | None:
    """The messages that are null; None: no message is."""
    import pyarrow as pa

    return pa.array([m is None for m in messages], pa.bool_()) if messages.count(None) else None
