"""Conversion of Protobuf messages to Connect structs, as in Confluent's ProtobufData.

`protobuf_type` returns a `ProtobufType`, which contains the Connect schema and two functions that
convert values of Protobuf's Python classes to Connect values and to columns.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor, OneofDescriptor
from google.protobuf.message_factory import GetMessageClass

from connect_py.api.errors import DataError
from connect_py.api.schema import (
    DECIMAL,
    PRECISION,
    SCALE,
    Schema,
    Struct,
    Type,
    Value,
    date,
    time,
    timestamp,
)
from connect_py.converters.json.json_values import INTEGER_BITS, decimal_of
from connect_py.java.strings import wrap

if TYPE_CHECKING:
    import pyarrow as pa

ENUM: Final = "io.confluent.connect.protobuf.Enum"
TAG: Final = "io.confluent.connect.protobuf.Tag"
UNION: Final = "io.confluent.connect.protobuf.Union"
LOGICAL_TYPE: Final = "logicalType"
_FIELD_META: Final = "confluent.field_meta"

Raw: TypeAlias = Any  # a value of a Protobuf class
ToValue: TypeAlias = Callable[[Schema, Raw], Value]
ToColumn: TypeAlias = "Callable[[Schema, Sequence[Raw]], pa.Array]"
"""Converts raw values (None for null) to a column with the schema."""

WRAPPERS: Final = frozenset(
    {
        "DoubleValue",
        "FloatValue",
        "Int64Value",
        "UInt64Value",
        "Int32Value",
        "UInt32Value",
        "BoolValue",
        "StringValue",
        "BytesValue",
    }
)
_UNSIGNED_64: Final = frozenset({FieldDescriptor.TYPE_UINT64, FieldDescriptor.TYPE_FIXED64})
_SCALARS: Final = {
    FieldDescriptor.TYPE_INT32: Type.INT32,
    FieldDescriptor.TYPE_SINT32: Type.INT32,
    FieldDescriptor.TYPE_SFIXED32: Type.INT32,
    FieldDescriptor.TYPE_UINT32: Type.INT64,
    FieldDescriptor.TYPE_FIXED32: Type.INT64,
    FieldDescriptor.TYPE_INT64: Type.INT64,
    FieldDescriptor.TYPE_SINT64: Type.INT64,
    FieldDescriptor.TYPE_SFIXED64: Type.INT64,
    FieldDescriptor.TYPE_UINT64: Type.INT64,
    FieldDescriptor.TYPE_FIXED64: Type.INT64,
    FieldDescriptor.TYPE_FLOAT: Type.FLOAT32,
    FieldDescriptor.TYPE_DOUBLE: Type.FLOAT64,
    FieldDescriptor.TYPE_BOOL: Type.BOOLEAN,
    FieldDescriptor.TYPE_STRING: Type.STRING,
    FieldDescriptor.TYPE_BYTES: Type.BYTES,
}


@dataclass(frozen=True, slots=True)
class Options:
    """Options for reading schemas, named after the converter properties."""

    full_names: bool = False  # enhanced.protobuf.schema.support
    int_for_enums: bool = False
    optional_for_nullables: bool = False
    optional_for_proto2: bool = True
    wrapper_for_nullables: bool = False
    wrapper_for_raw_primitives: bool = True
    struct_for_nulls: bool = False
    index_for_unions: bool = True
    flatten_unions: bool = False
    micros: bool = False  # timestamps as INT64 microseconds


@dataclass(frozen=True, slots=True)
class ProtobufType:
    """A Protobuf type, and its conversion to a Connect type. `value` is not called for nulls."""

    schema: Schema
    value: ToValue
    column: ToColumn


@dataclass(frozen=True, slots=True)
class Member:
    """A field of the struct that represents a message.

    `take` returns the raw value of the field in a message, or None for null.
    """

    name: str
    type: ProtobufType
    take: Callable[[Raw], Raw]
    # faster alternative to `take` for many messages
    take_all: Callable[[Sequence[Raw]], list[Raw]] | None = None

    def take_from(self, messages: Sequence[Raw]) -> list[Raw]:
        """Return the raw value of the field in each message."""
        return list(map(self.take, messages)) if self.take_all is None else self.take_all(messages)


def protobuf_type(
    descriptor: Descriptor, options: Options, version: int | None = None
) -> ProtobufType:
    """Convert a message type.

    Raises:
        DataError: The message type is recursive, which Connect schemas do not support.
    """
    result = _SchemaReader(options).message(descriptor)
    if version is None:
        return result
    return replace(result, schema=result.schema.replace(version=version))


class _SchemaReader:
    def __init__(self, options: Options) -> None:
        self._options = options
        self._open: list[str] = []

    def message(self, descriptor: Descriptor) -> ProtobufType:
        if descriptor.full_name in self._open:
            raise DataError(
                f"The message {descriptor.full_name} is recursive, which Connect schemas do not "
                f"support"
            )
        self._open.append(descriptor.full_name)
        members: list[Member] = []
        unions = [o for o in descriptor.oneofs if not _is_synthetic(o)]
        for index, union in enumerate(unions):
            members += self._union(union, index)
        members += [self._member(f) for f in descriptor.fields if f.containing_oneof not in unions]
        self._open.pop()
        name = descriptor.full_name if self._options.full_names else descriptor.name
        return _struct_type(members, name=name)

    def _union(self, union: OneofDescriptor, index: int) -> list[Member]:
        members = [
            Member(
                field.name, self._field(field), partial(_value_if_chosen, union.name, field.name)
            )
            for field in union.fields
        ]
        if self._options.flatten_unions:
            return members
        name = f"{union.name}_{index}" if self._options.index_for_unions else union.name
        struct = _struct_type(members, name=f"{UNION}.{union.name}", optional=True)
        return [Member(name, struct, partial(_message_if_chosen, union.name))]

    def _member(self, field: FieldDescriptor) -> Member:
        field_type = self._field(field)
        if field.is_repeated:
            return Member(field.name, field_type, attrgetter(field.name))
        nullable = field.has_presence
        if (
            field.message_type is None
            and field.containing_oneof is None
            and not self._options.optional_for_proto2
        ):
            nullable = False  # an absent proto2 scalar is read as its default
        if self._options.struct_for_nulls:
            nullable = False
        if not nullable:
            return Member(field.name, field_type, attrgetter(field.name))
        take = partial(_value_if_present, field.name)
        if field.message_type is not None:
            return Member(field.name, field_type, take, partial(_messages_if_present, field.name))
        # an absent proto2 field returns its default, which for an enum is the first value
        if field.default_value:
            return Member(field.name, field_type, take)
        return Member(field.name, field_type, take, partial(_scalars_if_present, field.name))

    def _field(self, field: FieldDescriptor) -> ProtobufType:
        message = field.message_type
        if message is not None and message.GetOptions().map_entry:
            keys, values = (self._single(message.fields_by_name[n]) for n in ("key", "value"))
            field_type = _map_type(keys, values)
        else:
            field_type = self._single(field)
            if field.is_repeated:
                field_type = _array_type(field_type)
        return replace(field_type, schema=self._attributed(field_type.schema, field))

    def _attributed(self, schema: Schema, field: FieldDescriptor) -> Schema:
        if self._options.optional_for_nullables:
            optional = schema.optional or (field.has_presence and field.message_type is None)
        else:
            optional = not field.is_required
        changes: dict[str, Any] = {
            "parameters": {**schema.parameters, TAG: str(field.number)},
            "optional": optional,
        }
        if field.has_default_value and schema.type.is_primitive and field.enum_type is None:
            changes["default"] = field.default_value
        return schema.replace(**changes)

    def _single(self, field: FieldDescriptor) -> ProtobufType:
        if field.enum_type is not None:
            return self._enum(field.enum_type)
        if field.message_type is not None:
            return self._message_field(field, field.message_type)
        kind = _SCALARS[field.type]
        connect_type = _field_params(field).get("connect.type")
        if kind is Type.INT32 and connect_type in ("int8", "int16"):
            narrow = Type(connect_type)
            return _by_values(Schema(narrow), lambda _, number: wrap(number, INTEGER_BITS[narrow]))
        if field.type in _UNSIGNED_64:
            return _by_values(Schema(kind), lambda _, number: wrap(number, 64))
        return ProtobufType(Schema(kind), _same, _leaf_column)

    def _enum(self, descriptor: EnumDescriptor) -> ProtobufType:
        name = descriptor.full_name if self._options.full_names else descriptor.name
        parameters = {ENUM: name, **{f"{ENUM}.{v.name}": str(v.number) for v in descriptor.values}}
        if self._options.int_for_enums:
            return ProtobufType(
                Schema(Type.INT32, parameters=parameters, optional=True), _same, _leaf_column
            )
        names = {number: value.name for number, value in descriptor.values_by_number.items()}

        def value(_: Schema, number: Raw) -> Value:
            return names.get(number) or f"UNKNOWN_ENUM_VALUE_{descriptor.name}_{number}"

        return _by_values(Schema(Type.STRING, parameters=parameters, optional=True), value)

    def _message_field(self, field: FieldDescriptor, message: Descriptor) -> ProtobufType:
        match message.full_name:
            case "google.protobuf.Timestamp":
                return self._timestamp()
            case "google.type.Date":
                return _by_values(date(optional=True), _date_value)
            case "google.type.TimeOfDay":
                return _by_values(time(optional=True), _time_value)
            case "confluent.type.Decimal":
                return _decimal_type(field)
        package, _, name = message.full_name.rpartition(".")
        if self._unwraps(package, name):
            inside = self._single(message.fields_by_name["value"])
            return ProtobufType(
                inside.schema.replace(optional=True),
                lambda schema, wrapper: inside.value(schema, wrapper.value),
                lambda schema, raws: inside.column(
                    schema, [None if r is None else r.value for r in raws]
                ),
            )
        struct = self.message(message)
        return replace(struct, schema=struct.schema.replace(optional=True))

    def _unwraps(self, package: str, name: str) -> bool:
        if package != "google.protobuf" or name not in WRAPPERS:
            return False
        return self._options.wrapper_for_nullables or not self._options.wrapper_for_raw_primitives

    def _timestamp(self) -> ProtobufType:
        if self._options.micros:
            schema = Schema(
                Type.INT64, optional=True, parameters={LOGICAL_TYPE: "timestamp-micros"}
            )
            return _by_values(
                schema, lambda _, moment: moment.seconds * 1_000_000 + moment.nanos // 1000
            )
        return _by_values(
            timestamp(optional=True),
            lambda _, moment: moment.seconds * 1000 + moment.nanos // 1_000_000,
        )


def _is_synthetic(union: OneofDescriptor) -> bool:
    """Return True if a oneof represents the proto3 keyword `optional`."""
    return (
        len(union.fields) == 1
        and union.name == f"_{union.fields[0].name}"
        and union.fields[0].has_presence
    )


def _same(schema: Schema, raw: Raw) -> Value:
    return raw


def _value_if_present(name: str, message: Raw) -> Raw:
    return getattr(message, name) if message.HasField(name) else None


def _messages_if_present(name: str, messages: Sequence[Raw]) -> list[Raw]:
    return [getattr(message, name) if message.HasField(name) else None for message in messages]


def _scalars_if_present(name: str, messages: Sequence[Raw]) -> list[Raw]:
    """Return the values of a field whose default is zero or empty.

    `HasField` is called only for messages in which the field has this default value.
    """
    values = list(map(attrgetter(name), messages))
    if all(values):
        return values
    return [
        v if v or message.HasField(name) else None
        for v, message in zip(values, messages, strict=True)
    ]


def _value_if_chosen(union: str, name: str, message: Raw) -> Raw:
    return getattr(message, name) if message.WhichOneof(union) == name else None


def _message_if_chosen(union: str, message: Raw) -> Raw:
    return None if message.WhichOneof(union) is None else message


def _leaf_column(schema: Schema, raws: Sequence[Raw]) -> pa.Array:
    import pyarrow as pa

    from connect_py.columns import arrow

    return pa.array(raws, arrow.arrow_type(schema))


def _by_values(schema: Schema, value: ToValue) -> ProtobufType:
    def column(schema: Schema, raws: Sequence[Raw]) -> pa.Array:
        from connect_py.columns import arrow

        return arrow.to_array(schema, [None if raw is None else value(schema, raw) for raw in raws])

    return ProtobufType(schema, value, column)


def _struct_type(members: Sequence[Member], **attributes: Any) -> ProtobufType:
    schema = Schema(Type.STRUCT, fields=[(m.name, m.type.schema) for m in members], **attributes)
    parts = [(m.take, m.type.value, m.type.schema) for m in members]

    def value(schema: Schema, message: Raw) -> Value:
        raws = [(take(message), convert, inside) for take, convert, inside in parts]
        return Struct(
            schema, [None if raw is None else convert(inside, raw) for raw, convert, inside in raws]
        )

    def column(schema: Schema, messages: Sequence[Raw]) -> pa.Array:
        import pyarrow as pa

        from connect_py.columns import arrow

        present = [m for m in messages if m is not None]
        if not members:
            return arrow.to_array(schema, [None if m is None else Struct(schema) for m in messages])
        children = [m.type.column(m.type.schema, m.take_from(present)) for m in members]
        data = pa.StructArray.from_arrays(children, fields=list(arrow.arrow_type(schema)))
        if len(present) == len(messages):
            return data
        return data.take(arrow.spread_indices([m is not None for m in messages]))

    return ProtobufType(schema, value, column)


def _array_type(items: ProtobufType) -> ProtobufType:
    schema = Schema(Type.ARRAY, value_schema=items.schema, optional=True)

    def column(schema: Schema, raws: Sequence[Raw]) -> pa.Array:
        from connect_py.columns import arrow

        data = items.column(items.schema, [item for raw in raws if raw is not None for item in raw])
        return arrow.list_array([None if raw is None else len(raw) for raw in raws], data)

    return ProtobufType(
        schema, lambda _, raw: [items.value(items.schema, item) for item in raw], column
    )


def _map_type(keys: ProtobufType, values: ProtobufType) -> ProtobufType:
    schema = Schema(Type.MAP, key_schema=keys.schema, value_schema=values.schema, optional=True)

    def value(_: Schema, raw: Raw) -> Value:
        return {keys.value(keys.schema, k): values.value(values.schema, v) for k, v in raw.items()}

    return _by_values(schema, value)


def _date_value(_: Schema, day: Raw) -> Value:
    import datetime

    try:
        return (
            datetime.date(day.year, day.month, day.day).toordinal()
            - datetime.date(1970, 1, 1).toordinal()
        )
    except ValueError as error:
        raise DataError(f"{day.year}-{day.month}-{day.day} is not a valid date") from error


def _time_value(_: Schema, moment: Raw) -> Value:
    seconds = (moment.hours * 60 + moment.minutes) * 60 + moment.seconds
    return seconds * 1000 + moment.nanos // 1_000_000


def _decimal_type(field: FieldDescriptor) -> ProtobufType:
    meta = _field_params(field)
    parameters = {SCALE: meta.get("scale", "0")}
    if "precision" in meta:
        parameters[PRECISION] = meta["precision"]
    schema = Schema(Type.BYTES, name=DECIMAL, version=1, parameters=parameters, optional=True)
    return _by_values(
        schema, lambda _, raw: decimal_of(int.from_bytes(raw.value, "big", signed=True), raw.scale)
    )


def _field_params(field: FieldDescriptor) -> Mapping[str, str]:
    """Return the parameters that Confluent's converters add to a field.

    The parameters are in the option `[(confluent.field_meta) = {params: ...}]`. The result is empty
    if the file does not import confluent/meta.proto.
    """
    pool = field.file.pool  # type: ignore[attr-defined] # missing in the type stubs
    try:
        extension = pool.FindExtensionByName(_FIELD_META)
        options = pool.FindMessageTypeByName("google.protobuf.FieldOptions")
    except KeyError:
        return {}
    # the options object was created by the default pool, which does not contain the extension
    parsed: Any = GetMessageClass(options).FromString(field.GetOptions().SerializeToString())
    return dict(parsed.Extensions[extension].params)
