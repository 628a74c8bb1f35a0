"""Conversion of Connect schemas and values to Protobuf, as in Confluent's ProtobufData."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import dataclass, field
from typing import Any, Final

from google.protobuf.descriptor import FieldDescriptor, FileDescriptor
from google.protobuf.message_factory import GetMessageClass

from connect_py.api.errors import DataError
from connect_py.api.schema import (
    DATE,
    DECIMAL,
    PRECISION,
    TIME,
    TIMESTAMP,
    Schema,
    Struct,
    Type,
    Value,
    decimal_scale,
)
from connect_py.converters.json.json_values import MILLIS_PER_DAY, unscaled, unscaled_bytes
from connect_py.converters.protobuf.proto_compiler import compile_proto
from connect_py.converters.protobuf.protobuf_schema import ENUM, TAG, UNION, WRAPPERS
from connect_py.converters.registry.schema_registry import RegisteredSchema

_SCALARS: Final = {
    Type.INT8: "int32",
    Type.INT16: "int32",
    Type.INT32: "int32",
    Type.INT64: "int64",
    Type.FLOAT32: "float",
    Type.FLOAT64: "double",
    Type.BOOLEAN: "bool",
    Type.STRING: "string",
    Type.BYTES: "bytes",
}
_WRAPPERS: Final = {
    Type.INT8: "Int32Value",
    Type.INT16: "Int32Value",
    Type.INT32: "Int32Value",
    Type.INT64: "Int64Value",
    Type.FLOAT32: "FloatValue",
    Type.FLOAT64: "DoubleValue",
    Type.BOOLEAN: "BoolValue",
    Type.STRING: "StringValue",
    Type.BYTES: "BytesValue",
}
_LOGICAL: Final[Mapping[str, tuple[str, str]]] = {  # message type, file
    DECIMAL: ("confluent.type.Decimal", "confluent/type/decimal.proto"),
    DATE: ("google.type.Date", "google/type/date.proto"),
    TIME: ("google.type.TimeOfDay", "google/type/timeofday.proto"),
    TIMESTAMP: ("google.protobuf.Timestamp", "google/protobuf/timestamp.proto"),
}
_META: Final = "confluent/meta.proto"
_NAMELESS: Final = "ConnectDefault"


@dataclass(slots=True)
class _File:
    """A Protobuf file under construction."""

    wrappers: bool = False  # use wrapper messages for optional primitives
    imports: set[str] = field(default_factory=set)
    messages: dict[str, str] = field(default_factory=dict)
    schemas: dict[str, Schema] = field(default_factory=dict)

    def text(self, package: str) -> str:
        head = ['syntax = "proto3";', *([f"package {package};"] if package else [])]
        head += [f'import "{name}";' for name in sorted(self.imports)]
        return "\n".join(head + list(self.messages.values())) + "\n"


class ProtobufWriter:
    """Writes values that have one struct schema."""

    def __init__(self, schema: Schema, *, wrappers: bool = False) -> None:
        """Create and compile the Protobuf schema.

        Args:
            schema: A struct schema.
            wrappers: True to write optional primitives as wrapper messages.

        Raises:
            DataError: The schema has no equivalent in Protobuf.
        """
        if schema.type is not Type.STRUCT:
            raise DataError(f"Protobuf messages must be structs, not {schema.type.name}")
        package, _, simple = (schema.name or _NAMELESS).rpartition(".")
        file = _File(wrappers)
        file.messages[simple] = ""  # must be the first message in the file
        _write_message(file, simple, schema)
        self.text = file.text(package)
        self.name = schema.name
        self._message = simple
        self._use(compile_proto(self.text))

    def _use(self, file: FileDescriptor) -> None:
        """Use the message type that has the schema's name, or the first type if there is none."""
        names = list(file.message_types_by_name)
        if not names:
            raise DataError("the schema has no message type")
        index = names.index(self._message) if self._message in names else 0
        # one index, zigzag-encoded
        self.indexes = b"\0" if index == 0 else b"\2" + _varint(2 * index)
        self._class: Any = GetMessageClass(file.message_types_by_name[names[index]])

    def by(self, registered: RegisteredSchema, *, strict: bool) -> ProtobufWriter:
        """Return a writer that writes the same values with another schema.

        Members are matched by name.

        Raises:
            DataError: The schema is invalid.
        """
        writer = copy(self)
        writer._use(compile_proto(registered.text, registered.references))
        return writer

    def write(self, value: Value) -> bytes:
        """Serialize a value to a message body.

        Raises:
            DataError: The value does not match its schema.
        """
        message = self._class()
        try:
            _fill(message, value)
            body: bytes = message.SerializeToString(deterministic=True)
        except (TypeError, ValueError, AttributeError, KeyError) as error:
            raise DataError(f"The value does not match its schema: {error}") from error
        return body


def _varint(number: int) -> bytes:
    data = bytearray()
    while number > 0x7F:
        data.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*data, number])


def _write_message(file: _File, name: str, schema: Schema) -> None:
    previous = file.schemas.get(name)
    if previous is not None:
        if previous.fields != schema.fields:
            raise DataError(f"Two structs with the name {name} have different fields")
        return
    file.schemas[name] = schema
    lines = [f"message {name} {{"]
    numbers = _Numbers()
    for member in schema.fields:
        if _is_union(member.schema):
            lines.append(f"  oneof {_union_name(member.name, member.schema)} {{")
            lines += [
                f"    {_declared(file, f.name, f.schema, numbers)}" for f in member.schema.fields
            ]
            lines.append("  }")
            continue
        optional = _is_optional_primitive(member.schema) and not _is_wrapped(file, member.schema)
        lines.append(
            f"  {'optional ' if optional else ''}{_declared(file, member.name, member.schema, numbers)}"  # noqa: E501 - one literal
        )
    file.messages[name] = "\n".join([*lines, "}"])


def _is_optional_primitive(schema: Schema) -> bool:
    return schema.optional and schema.type.is_primitive and schema.name not in _LOGICAL


def _is_wrapped(file: _File, schema: Schema) -> bool:
    return file.wrappers and _is_optional_primitive(schema) and ENUM not in schema.parameters


class _Numbers:
    """Assigns each field the number from its schema, or else the next free number."""

    def __init__(self) -> None:
        self._used: set[int] = set()
        self._next = 1

    def take(self, schema: Schema) -> int:
        tag = schema.parameters.get(TAG)
        if tag is not None and int(tag) not in self._used:
            number = int(tag)
        else:
            while self._next in self._used or 19_000 <= self._next < 20_000:
                self._next += 1
            number = self._next
        self._used.add(number)
        return number


def _declared(file: _File, name: str, schema: Schema, numbers: _Numbers) -> str:
    if _is_wrapped(file, schema):
        file.imports.add("google/protobuf/wrappers.proto")
        kind, options = f"google.protobuf.{_WRAPPERS[schema.type]}", ""
    else:
        kind, options = _type(file, name, schema)
    return f"{kind} {name} = {numbers.take(schema)}{options};"


def _type(file: _File, name: str, schema: Schema) -> tuple[str, str]:
    """Return the declared type of a field, and its options."""
    if schema.type is Type.ARRAY:
        assert schema.value_schema is not None
        kind, options = _type(file, name, schema.value_schema)
        if kind.startswith(("repeated ", "map<")):
            raise DataError(f"Protobuf does not support lists of lists or maps: {name}")
        return f"repeated {kind}", options
    if schema.type is Type.MAP:
        return _map_type(file, name, schema), ""
    if schema.type is Type.STRUCT:
        inner = (schema.name or f"{_NAMELESS}{len(file.messages)}").rpartition(".")[2]
        file.messages.setdefault(inner, "")
        _write_message(file, inner, schema)
        return inner, ""
    if schema.name is not None and schema.name in _LOGICAL:
        kind, imported = _LOGICAL[schema.name]
        file.imports.add(imported)
        return kind, _decimal_options(file, schema) if schema.name == DECIMAL else ""
    if ENUM in schema.parameters and schema.type is Type.STRING:
        return _enum(file, schema), ""
    options = ""
    if schema.type in (Type.INT8, Type.INT16):
        file.imports.add(_META)
        options = f' [(confluent.field_meta) = {{params: [{{key: "connect.type", value: "{schema.type.value}"}}]}}]'  # noqa: E501 - one literal
    return _SCALARS[schema.type], options


def _map_type(file: _File, name: str, schema: Schema) -> str:
    assert schema.key_schema is not None
    assert schema.value_schema is not None
    keys, _ = _type(file, name, schema.key_schema)
    values, _ = _type(file, name, schema.value_schema)
    if (
        keys in ("float", "double", "bytes")
        or "." in keys
        or values.startswith(("repeated ", "map<"))
    ):
        raise DataError(f"Protobuf does not support the types of this map: {name}")
    return f"map<{keys}, {values}>"


def _decimal_options(file: _File, schema: Schema) -> str:
    file.imports.add(_META)
    params = [f'{{key: "scale", value: "{decimal_scale(schema)}"}}']
    if PRECISION in schema.parameters:
        params.insert(0, f'{{key: "precision", value: "{schema.parameters[PRECISION]}"}}')
    return f" [(confluent.field_meta) = {{params: [{', '.join(params)}]}}]"


def _enum(file: _File, schema: Schema) -> str:
    name = schema.parameters[ENUM].rpartition(".")[2] or "Enum"
    prefix = f"{ENUM}."
    symbols = {
        k.removeprefix(prefix): v for k, v in schema.parameters.items() if k.startswith(prefix)
    }
    lines = [
        f"enum {name} {{",
        *(f"  {symbol} = {number};" for symbol, number in symbols.items()),
        "}",
    ]
    file.messages[name] = "\n".join(lines)
    return name


def _is_union(schema: Schema) -> bool:
    return schema.type is Type.STRUCT and (schema.name or "").startswith(f"{UNION}.")


def _union_name(field_name: str, schema: Schema) -> str:
    return (schema.name or field_name).removeprefix(f"{UNION}.")


def _fill(message: Any, row: Struct) -> None:
    for member, value in row:
        if value is None:
            continue
        if _is_union(member.schema):
            _fill(message, value)
        else:
            _put(message, member.name, member.schema, value)


def _put(message: Any, name: str, schema: Schema, value: Value) -> None:
    if schema.type is Type.ARRAY:
        assert schema.value_schema is not None
        target = getattr(message, name)
        for item in value:
            _append(target, schema.value_schema, item)
    elif schema.type is Type.MAP:
        assert schema.value_schema is not None
        target = getattr(message, name)
        for key, inside in value.items():
            filler = _filler(schema.value_schema)
            if filler is None:
                target[key] = _scalar(message, name, schema.value_schema, inside)
            else:
                filler(target[key], inside)
    else:
        filler = _filler(schema)
        if filler is None and _is_wrapper(message.DESCRIPTOR.fields_by_name[name]):
            getattr(message, name).value = value
        elif filler is None:
            setattr(message, name, _scalar(message, name, schema, value))
        else:
            getattr(message, name).SetInParent()
            filler(getattr(message, name), value)


def _is_wrapper(field: FieldDescriptor) -> bool:
    if field.message_type is None:
        return False
    package, _, name = field.message_type.full_name.rpartition(".")
    return package == "google.protobuf" and name in WRAPPERS


def _append(target: Any, schema: Schema, item: Value) -> None:
    filler = _filler(schema)
    if item is None:
        raise DataError("Protobuf does not support nulls in lists")
    if filler is None:
        target.append(item)
    else:
        filler(target.add(), item)


def _scalar(message: Any, name: str, schema: Schema, value: Value) -> Any:
    if ENUM in schema.parameters and schema.type is Type.STRING:
        number = schema.parameters.get(f"{ENUM}.{value}")
        if number is None:
            raise DataError(f"{value} is not a symbol of {schema.parameters[ENUM]}")
        return int(number)
    return value


def _filler(schema: Schema) -> Callable[[Any, Value], None] | None:
    """Return a function that fills the message for a value, or None if the value is a scalar."""
    if schema.type is Type.STRUCT:
        return _fill
    return _FILLERS.get(schema.name or "")


def _fill_decimal(message: Any, value: Value) -> None:
    scale = -value.as_tuple().exponent
    message.value = unscaled_bytes(unscaled(value, scale))
    message.precision = max(len(value.as_tuple().digits), 1)
    message.scale = scale


def _fill_date(message: Any, value: Value) -> None:
    import datetime

    try:
        day = datetime.date(1970, 1, 1) + datetime.timedelta(days=value)
    except OverflowError as error:
        raise DataError(f"{value} days from the epoch are outside the range of dates") from error
    message.year, message.month, message.day = day.year, day.month, day.day


def _fill_time(message: Any, value: Value) -> None:
    if not 0 <= value <= MILLIS_PER_DAY:
        raise DataError(f"{value} ms is not a time of day")
    seconds, millis = divmod(value, 1000)
    message.hours, message.minutes, message.seconds = (
        seconds // 3600,
        seconds // 60 % 60,
        seconds % 60,
    )
    message.nanos = millis * 1_000_000


def _fill_timestamp(message: Any, value: Value) -> None:
    seconds, millis = divmod(value, 1000)
    message.seconds, message.nanos = seconds, millis * 1_000_000


_FILLERS: Final[Mapping[str, Callable[[Any, Value], None]]] = {
    DECIMAL: _fill_decimal,
    DATE: _fill_date,
    TIME: _fill_time,
    TIMESTAMP: _fill_timestamp,
}
