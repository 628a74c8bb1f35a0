"""Converter for Protobuf, equivalent to `io.confluent.connect.protobuf.ProtobufConverter`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar

from google.protobuf.descriptor import Descriptor, FileDescriptor
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass

from connect_py.api.config import ConfigDef, Importance, Type
from connect_py.api.errors import DataError, NotColumnar
from connect_py.api.schema import Schema, Value
from connect_py.converters.protobuf.proto_compiler import compile_proto
from connect_py.converters.protobuf.protobuf_schema import Options, protobuf_type
from connect_py.converters.protobuf.protobuf_writing import ProtobufWriter
from connect_py.converters.registry.registry_converter import (
    CONFIG_DEF,
    MessageReader,
    RegistryConverter,
)
from connect_py.converters.registry.schema_registry import RegisteredSchema

if TYPE_CHECKING:
    import pyarrow as pa

_MAX_DEPTH = 100  # maximum nesting depth of message types


class ProtobufConverter(RegistryConverter):
    """Converts Protobuf in Confluent's wire format, with schemas from a schema registry."""

    kind = "PROTOBUF"
    label = "Protobuf"
    config_def: ClassVar[ConfigDef] = (
        ConfigDef(CONFIG_DEF.keys.values())
        .define(
            "enhanced.protobuf.schema.support",
            Type.BOOLEAN,
            default=False,
            importance=Importance.MEDIUM,
            doc="Include the package in the names of structs and enums.",
        )
        .define(
            "int.for.enums",
            Type.BOOLEAN,
            default=False,
            importance=Importance.MEDIUM,
            doc="Read enums as numbers.",
        )
        .define(
            "optional.for.nullables",
            Type.BOOLEAN,
            default=False,
            importance=Importance.MEDIUM,
            doc="Make fields optional only if they are declared as optional.",
        )
        .define(
            "optional.for.proto2",
            Type.BOOLEAN,
            default=True,
            importance=Importance.MEDIUM,
            doc="Read absent optional proto2 fields as null instead of their default.",
        )
        .define(
            "wrapper.for.nullables",
            Type.BOOLEAN,
            default=False,
            importance=Importance.MEDIUM,
            doc="Read wrapper messages as optional primitives, and write optional primitives as "
            "wrapper messages.",
        )
        .define(
            "wrapper.for.raw.primitives",
            Type.BOOLEAN,
            default=True,
            importance=Importance.MEDIUM,
            doc="Read wrapper messages as structs.",
        )
        .define(
            "generate.struct.for.nulls",
            Type.BOOLEAN,
            default=False,
            importance=Importance.LOW,
            doc="Read absent messages and optional fields as empty messages and default values.",
        )
        .define(
            "generate.index.for.unions",
            Type.BOOLEAN,
            default=True,
            importance=Importance.LOW,
            doc="Append a number to the names of oneofs.",
        )
        .define(
            "flatten.unions",
            Type.BOOLEAN,
            default=False,
            importance=Importance.MEDIUM,
            doc="Add the members of oneofs to the enclosing struct.",
        )
        .define(
            "connect_py.timestamp.micros",
            Type.BOOLEAN,
            default=False,
            importance=Importance.LOW,
            doc="Read timestamps as INT64 microseconds, which are more precise than Connect's "
            "milliseconds.",
        )
    )

    def configure(self, configs: Mapping[str, str], *, is_key: bool = False) -> None:
        parsed = self.config_def.parse(configs)
        self._options = Options(
            full_names=parsed["enhanced.protobuf.schema.support"],
            int_for_enums=parsed["int.for.enums"],
            optional_for_nullables=parsed["optional.for.nullables"],
            optional_for_proto2=parsed["optional.for.proto2"],
            wrapper_for_nullables=parsed["wrapper.for.nullables"],
            wrapper_for_raw_primitives=parsed["wrapper.for.raw.primitives"],
            struct_for_nulls=parsed["generate.struct.for.nulls"],
            index_for_unions=parsed["generate.index.for.unions"],
            flatten_unions=parsed["flatten.unions"],
            micros=parsed["connect_py.timestamp.micros"],
        )
        self._files = lru_cache(maxsize=max(1, parsed["schemas.cache.config"]))(_compiled)
        super().configure(configs, is_key=is_key)

    def prefix_length(self, data: bytes) -> int:
        start = super().prefix_length(data)
        return (
            message_indexes(data, start)[1]
            if data[:1] in (b"\0", b"\1") and len(data) >= start
            else start
        )

    def make_reader(
        self, registered: RegisteredSchema, version: int | None, prefix: bytes, rest: bytes
    ) -> MessageReader:
        references = tuple(registered.references.items())
        indexes, _ = message_indexes(rest, 0)
        file = self._files(registered.text, references)
        if isinstance(file, DataError):
            raise file.with_traceback(None)  # otherwise, the traceback would grow with each raise
        return _ProtobufReader(prefix, _message(file, indexes), self._options, version)

    def make_writer(self, schema: Schema) -> ProtobufWriter:
        return ProtobufWriter(schema, wrappers=self._options.wrapper_for_nullables)


class _ProtobufReader(MessageReader):
    columnar = True

    def __init__(
        self, prefix: bytes, descriptor: Descriptor, options: Options, version: int | None
    ) -> None:
        super().__init__(prefix)
        self._type = protobuf_type(descriptor, options, version)
        self.schema = self._type.schema
        self._parse: Any = GetMessageClass(descriptor).FromString

    def value(self, body: bytes) -> Value:
        try:
            return self._type.value(self.schema, self._parse(body))
        except DecodeError as error:
            raise DataError(str(error)) from error

    def columns(self, messages: Sequence[bytes | None]) -> tuple[pa.Array, Sequence[int]]:
        import pyarrow as pa

        parsed: list[Any] = []
        damaged: list[int] = []
        bodies = iter(self.bodies(messages))
        while True:
            try:  # messages before an invalid message remain in the list
                parsed.extend(None if body is None else self._parse(body) for body in bodies)
                break
            except DecodeError:
                damaged.append(len(parsed))
                parsed.append(None)
        try:
            return self._type.column(self.schema, parsed), damaged
        except (DecodeError, DataError, pa.ArrowException, OverflowError) as error:
            raise NotColumnar(str(error)) from error


def _compiled(text: str, references: tuple[tuple[str, str], ...]) -> FileDescriptor | DataError:
    """Return the file or the error. Caching the error avoids recompiling for each message."""
    try:
        return compile_proto(text, dict(references))
    except DataError as error:
        return error


def _message(file: FileDescriptor, indexes: Sequence[int]) -> Descriptor:
    """Return the message type that these indexes identify: one index per nesting level."""
    types = list(file.message_types_by_name.values())
    message_type: Descriptor | None = None
    for index in indexes:
        if index >= len(types):
            raise DataError(f"the schema has no message {list(indexes)}")
        message_type = types[index]
        types = list(message_type.nested_types)
    assert message_type is not None
    return message_type


def message_indexes(data: bytes, at: int) -> tuple[tuple[int, ...], int]:
    """Return the indexes of the message type, and the position after them.

    Raises:
        DataError: The indexes are invalid.
    """
    count, at = _zigzag(data, at)
    if count == 0:
        return (0,), at
    if not 0 < count <= _MAX_DEPTH:
        raise DataError(f"invalid number of message indexes: {count}")
    indexes = []
    for _ in range(count):
        index, at = _zigzag(data, at)
        if index < 0:
            raise DataError("a negative message index")
        indexes.append(index)
    return tuple(indexes), at


def _zigzag(data: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        if at >= len(data) or shift > 63:
            raise DataError("the message indexes are truncated")
        byte = data[at]
        number |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return (number >> 1) ^ -(number & 1), at
