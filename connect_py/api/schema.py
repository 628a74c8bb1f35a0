"""Connect schemas: types of keys, values, and header values.

In rows, the types are represented as follows: INT8 to INT64 as `int`, FLOAT32 and FLOAT64 as
`float`, BOOLEAN as `bool`, STRING as `str`, BYTES as `bytes`, ARRAY as `list`, MAP as `dict`, and
STRUCT as `Struct`. The logical type Decimal is represented as `decimal.Decimal`. Date, Time, and
Timestamp remain integers (days, milliseconds of the day, milliseconds since the epoch), because
topics contain values that Python's `datetime` does not support (24:00, years BC, and five-digit
years).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal as PyDecimal
from enum import Enum
from functools import partial
from typing import Any, NamedTuple, TypeAlias

from connect_py.api.errors import DataError, SchemaBuilderError

Value: TypeAlias = Any  # a value of one of the Python types above, or None

DECIMAL = "org.apache.kafka.connect.data.Decimal"
DATE = "org.apache.kafka.connect.data.Date"
TIME = "org.apache.kafka.connect.data.Time"
TIMESTAMP = "org.apache.kafka.connect.data.Timestamp"
SCALE = "scale"  # parameter of DECIMAL
PRECISION = "connect.decimal.precision"  # a parameter of DECIMAL that registry converters set
# maximum absolute value of a scale, equal to the precision of Arrow's widest decimal type; Arrow's
# casts do not check the scale
MAX_DECIMAL_SCALE = 76
# maximum number of digits in a PostgreSQL numeric; values with more than 76 digits have no columnar
# form
MAX_DECIMAL_PRECISION = 147_455
# maximum nesting depth of structs, arrays, and maps in Arrow
MAX_NESTING = 64
# maximum number of types in a schema; if each level uses a named type twice, the number doubles
# with every level
MAX_SCHEMA_SIZE = 20_000
# parameter specific to connect-py: former names of a field, separated by commas
ALIASES = "connect_py.aliases"


class Type(Enum):
    """Connect schema type: a primitive type or one of the containers ARRAY, MAP, and STRUCT."""

    INT8 = "int8"
    INT16 = "int16"
    INT32 = "int32"
    INT64 = "int64"
    FLOAT32 = "float"  # the name that JsonConverter uses
    FLOAT64 = "double"
    BOOLEAN = "boolean"
    STRING = "string"
    BYTES = "bytes"
    ARRAY = "array"
    MAP = "map"
    STRUCT = "struct"

    __hash__ = object.__hash__  # faster than Enum.__hash__, which is a Python function

    @property
    def is_primitive(self) -> bool:
        return self not in _CONTAINERS


_CONTAINERS = frozenset({Type.ARRAY, Type.MAP, Type.STRUCT})
_INTEGER_BITS = {Type.INT8: 8, Type.INT16: 16, Type.INT32: 32, Type.INT64: 64}


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a STRUCT schema. `index` is its position, starting at 0."""

    name: str
    index: int
    schema: Schema


class Schema:
    """An immutable Connect schema.

    As in Java, two schemas are equal if all of their attributes are equal. The hash is computed
    once, so schemas are efficient dictionary keys. The fields of a STRUCT are looked up by name in
    constant time.
    """

    __slots__ = (
        "_by_name",
        "_hash",
        "_levels",
        "_size",
        "default",
        "doc",
        "fields",
        "key_schema",
        "name",
        "optional",
        "parameters",
        "type",
        "value_schema",
        "version",
    )

    type: Type
    optional: bool
    default: Value  # None if there is no default
    name: str | None
    version: int | None
    doc: str | None
    parameters: Mapping[str, str]  # empty if there are none
    fields: tuple[Field, ...]  # STRUCT only
    key_schema: Schema | None  # MAP only
    value_schema: Schema | None  # ARRAY and MAP

    def __init__(
        self,
        type: Type,  # noqa: A002 - Connect's name
        *,
        optional: bool = False,
        default: Value = None,
        name: str | None = None,
        version: int | None = None,
        doc: str | None = None,
        parameters: Mapping[str, str] | None = None,
        fields: Iterable[tuple[str, Schema]] = (),
        key_schema: Schema | None = None,
        value_schema: Schema | None = None,
    ) -> None:
        """Create a schema.

        Raises:
            SchemaBuilderError: Two fields have the same name, a name or doc is not a string, a
                container has no member schema, the default does not match the type, a Decimal has
                no scale, its scale or precision is not supported in columns, members are nested
                deeper than `MAX_NESTING`, or there are more than `MAX_SCHEMA_SIZE` types.
        """
        put = partial(object.__setattr__, self)
        put("type", type)
        put("optional", optional)
        put("default", default)
        put("name", name)
        put("version", version)
        put("doc", doc)
        put("parameters", dict(parameters or {}))
        put("fields", tuple(Field(n, i, s) for i, (n, s) in enumerate(fields)))
        put("key_schema", key_schema)
        put("value_schema", value_schema)
        put("_by_name", self._checked_names())
        if type is Type.ARRAY and value_schema is None:
            raise SchemaBuilderError("an ARRAY schema needs a value schema")
        if type is Type.MAP and (key_schema is None or value_schema is None):
            raise SchemaBuilderError("a MAP schema needs a key schema and a value schema")
        levels, size = self._measures()
        put("_levels", levels)
        put("_size", size)
        put(
            "_hash",
            hash(
                (
                    type,
                    optional,
                    name,
                    version,
                    doc,
                    tuple(sorted(self.parameters.items())),
                    self.fields,
                    key_schema,
                    value_schema,
                    repr(default),
                )
            ),
        )
        try:
            if name == DECIMAL and type is Type.BYTES:
                check_decimal_scale(decimal_scale(self))
                decimal_precision(self)
        except DataError as error:
            raise SchemaBuilderError(str(error)) from error
        try:
            if default is not None:
                validate_value(self, default)
        except DataError as error:
            raise SchemaBuilderError(f"Invalid default value: {error}") from error

    def _checked_names(self) -> dict[str, Field]:
        """Check the names and return the fields keyed by name."""
        if not (isinstance(self.name, str | None) and isinstance(self.doc, str | None)):
            raise SchemaBuilderError("the name and the doc of a schema must be strings")
        by_name: dict[str, Field] = {}
        for field in self.fields:
            name: object = field.name
            # reject unpaired surrogates
            if not isinstance(name, str) or name.encode(errors="ignore").decode() != name:
                raise SchemaBuilderError(
                    f"the name of a field must be a valid string, not {field.name!r}"
                )
            if field.name in by_name:
                raise SchemaBuilderError(
                    f"Cannot create field because of field name duplication {field.name}"
                )
            by_name[field.name] = field
        return by_name

    def _measures(self) -> tuple[int, int]:
        """Return the nesting depth and the number of types."""
        if self.type not in _CONTAINERS:
            return 0, 1
        inside = [
            s
            for s in (*(f.schema for f in self.fields), self.key_schema, self.value_schema)
            if s is not None
        ]
        levels = 1 + max((s._levels for s in inside), default=0)  # type: ignore[attr-defined] # set through object.__setattr__
        if levels > MAX_NESTING:
            raise SchemaBuilderError(f"Schemas must not be nested deeper than {MAX_NESTING} levels")
        size = 1 + sum(s._size for s in inside)  # type: ignore[attr-defined] # set through object.__setattr__
        if size > MAX_SCHEMA_SIZE:
            raise SchemaBuilderError(f"Schemas must not contain more than {MAX_SCHEMA_SIZE} types")
        return levels, size

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError("a Schema is immutable")

    def __delattr__(self, name: str) -> None:
        raise AttributeError("a Schema is immutable")

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(Schema, **self._arguments()), ()

    def _arguments(self) -> dict[str, Any]:
        """Return the arguments of the constructor."""
        names = (
            "type",
            "optional",
            "default",
            "name",
            "version",
            "doc",
            "parameters",
            "key_schema",
            "value_schema",
        )
        return {
            **{n: getattr(self, n) for n in names},
            "fields": [(f.name, f.schema) for f in self.fields],
        }

    def __hash__(self) -> int:
        return self._hash  # type: ignore[attr-defined, no-any-return] # set through object.__setattr__

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, Schema):
            return NotImplemented
        return (
            hash(self) == hash(other)
            and self.type is other.type
            and self.optional == other.optional
            # a NaN default is equal to itself
            and (self.default == other.default or repr(self.default) == repr(other.default))
            and self.name == other.name
            and self.version == other.version
            and self.doc == other.doc
            and self.parameters == other.parameters
            and self.fields == other.fields
            and self.key_schema == other.key_schema
            and self.value_schema == other.value_schema
        )

    def field(self, name: str) -> Field | None:
        """Return the field with this name, or None."""
        field: Field | None = self._by_name.get(name)  # type: ignore[attr-defined] # set through object.__setattr__
        return field

    def __getitem__(self, name: str) -> Schema:
        """Return the schema of the field with this name. Raises KeyError if there is none."""
        field = self.field(name)
        if field is None:
            raise KeyError(name)
        return field.schema

    def replace(self, **changes: Any) -> Schema:
        """Return a copy with some constructor arguments replaced."""
        return Schema(**{**self._arguments(), **changes})

    def __repr__(self) -> str:
        label = f"{self.name}:{self.type.name}" if self.name else self.type.name
        return f"Schema{{{label}}}"


INT8 = Schema(Type.INT8)
INT16 = Schema(Type.INT16)
INT32 = Schema(Type.INT32)
INT64 = Schema(Type.INT64)
FLOAT32 = Schema(Type.FLOAT32)
FLOAT64 = Schema(Type.FLOAT64)
BOOLEAN = Schema(Type.BOOLEAN)
STRING = Schema(Type.STRING)
BYTES = Schema(Type.BYTES)
OPTIONAL_INT8 = Schema(Type.INT8, optional=True)
OPTIONAL_INT16 = Schema(Type.INT16, optional=True)
OPTIONAL_INT32 = Schema(Type.INT32, optional=True)
OPTIONAL_INT64 = Schema(Type.INT64, optional=True)
OPTIONAL_FLOAT32 = Schema(Type.FLOAT32, optional=True)
OPTIONAL_FLOAT64 = Schema(Type.FLOAT64, optional=True)
OPTIONAL_BOOLEAN = Schema(Type.BOOLEAN, optional=True)
OPTIONAL_STRING = Schema(Type.STRING, optional=True)
OPTIONAL_BYTES = Schema(Type.BYTES, optional=True)


def struct(*fields: tuple[str, Schema], **attributes: Any) -> Schema:
    """Return a STRUCT schema with fields from (name, schema) pairs. See `Schema` for attributes."""
    return Schema(Type.STRUCT, fields=fields, **attributes)


def array(values: Schema, **attributes: Any) -> Schema:
    """Return an ARRAY schema."""
    return Schema(Type.ARRAY, value_schema=values, **attributes)


def map_of(keys: Schema, values: Schema, **attributes: Any) -> Schema:
    """Return a MAP schema."""
    return Schema(Type.MAP, key_schema=keys, value_schema=values, **attributes)


def decimal(scale: int, **attributes: Any) -> Schema:
    """Return a schema with Connect's logical type Decimal.

    In messages, values are unscaled big-endian integers in BYTES. In rows, they are
    `decimal.Decimal`.
    """
    parameters = {SCALE: str(scale), **attributes.pop("parameters", {})}
    return Schema(Type.BYTES, name=DECIMAL, version=1, parameters=parameters, **attributes)


def date(**attributes: Any) -> Schema:
    """Return a schema with Connect's logical type Date: INT32 days since the epoch."""
    return Schema(Type.INT32, name=DATE, version=1, **attributes)


def time(**attributes: Any) -> Schema:
    """Return a schema with Connect's logical type Time: INT32 milliseconds of the day."""
    return Schema(Type.INT32, name=TIME, version=1, **attributes)


def timestamp(**attributes: Any) -> Schema:
    """Return a schema with Connect's logical type Timestamp: INT64 milliseconds since the epoch."""
    return Schema(Type.INT64, name=TIMESTAMP, version=1, **attributes)


def decimal_scale(schema: Schema) -> int:
    """Return the scale of a Decimal schema.

    Raises:
        DataError: The parameter is missing or is not a number.
    """
    text = schema.parameters.get(SCALE)
    if text is None:
        raise DataError("Invalid Decimal schema: scale parameter not found.")
    try:
        return int(text)
    except ValueError as error:
        raise DataError("Invalid scale parameter found in Decimal schema.") from error


def decimal_precision(schema: Schema) -> int | None:
    """Return the precision of a Decimal schema, or None if it is not specified.

    Raises:
        DataError: The parameter is not a number, or is greater than `MAX_DECIMAL_PRECISION`.
    """
    text = schema.parameters.get(PRECISION)
    if text is None:
        return None
    try:
        precision = int(text)
    except ValueError as error:
        raise DataError("Invalid precision parameter found in Decimal schema.") from error
    if not 0 <= precision <= MAX_DECIMAL_PRECISION:
        raise DataError(
            f"The precision of a decimal must be at most {MAX_DECIMAL_PRECISION}, not {precision}"
        )
    return precision


def check_decimal_scale(scale: int) -> int:
    """Check that Arrow supports the scale of a Decimal schema or value, and return the scale.

    Raises:
        DataError: Arrow does not support the scale. Its casts would read past the end of a lookup
            table.
    """
    if abs(scale) > MAX_DECIMAL_SCALE:
        raise DataError(
            f"The scale of a decimal must be between -{MAX_DECIMAL_SCALE} and "
            f"{MAX_DECIMAL_SCALE}, not {scale}"
        )
    return scale


class SchemaAndValue(NamedTuple):
    """A value with its schema. `(None, None)` is a tombstone, and `(None, x)` is schemaless."""

    schema: Schema | None
    value: Value


NULL = SchemaAndValue(None, None)


class Struct:
    """A value with a STRUCT schema. It has one value per field, in schema order.

    Like Java's `Struct.get`, `get` returns the default of the field's schema if the value is null.
    `get_without_default` returns the value unchanged.
    """

    __slots__ = ("schema", "values")

    def __init__(self, schema: Schema, values: Sequence[Value] | None = None) -> None:
        """Create a struct. `values` contains one unchecked value per field, in order."""
        self.schema = schema
        self.values: list[Value] = [None] * len(schema.fields) if values is None else list(values)

    @classmethod
    def of(cls, schema: Schema, **values: Value) -> Struct:
        """Create a struct from values keyed by field name. Check each value against its schema."""
        row = cls(schema)
        for name, value in values.items():
            row.put(name, value)
        return row

    def _field(self, name: str) -> Field:
        field = self.schema.field(name)
        if field is None:
            raise DataError(f"{name} is not a valid field name")
        return field

    def get(self, name: str) -> Value:
        """Return the value of a field, or the default of its schema if the value is null.

        Raises:
            DataError: The field does not exist.
        """
        field = self._field(name)
        value = self.values[field.index]
        return field.schema.default if value is None else value

    __getitem__ = get

    def get_without_default(self, name: str) -> Value:
        """Return the value of a field unchanged. Raises DataError if the field does not exist."""
        return self.values[self._field(name).index]

    def put(self, name: str, value: Value) -> Struct:
        """Set a field and return self.

        Raises:
            DataError: The field does not exist, or the value does not match its schema.
        """
        field = self._field(name)
        validate_value(field.schema, value, field.name)
        self.values[field.index] = value
        return self

    def validate(self) -> None:
        """Check each value against its schema. Raises DataError for the first invalid value."""
        for field, value in self:
            validate_value(field.schema, value, field.name)

    def read_values(self) -> list[Value]:
        """Return the values in field order. The list must not be modified."""
        return self.values

    def shared_column(self, schema: Schema, values: Sequence[Struct | None]) -> Any:
        """Return the Arrow column from which these structs were read if they are unchanged.

        `values` includes this struct. Return None if there is no such column.
        """
        return None

    def __iter__(self) -> Iterator[tuple[Field, Value]]:
        """Iterate over the fields and their values (without defaults), in order."""
        return zip(self.schema.fields, self.read_values(), strict=True)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Struct):
            return NotImplemented
        return self.schema == other.schema and self.read_values() == other.read_values()

    __hash__ = None  # type: ignore[assignment] # structs are mutable

    def __repr__(self) -> str:
        inside = ",".join(f"{f.name}={v}" for f, v in self if v is not None)
        return f"Struct{{{inside}}}"


def java_class_name(value: Value, schema: Schema | None = None) -> str:
    """Return the Java class name of a value, for error messages.

    Without a schema, an `int` is treated as a Long, as in JSON.
    """
    if value is None:
        return "null"
    if schema is not None and isinstance(value, int | float):
        if schema.name in (DATE, TIME, TIMESTAMP):
            return "java.util.Date"
        if schema.type in _JAVA_NUMBERS:
            return _JAVA_NUMBERS[schema.type]
    for python, java in _JAVA_CLASSES:
        if isinstance(value, python):
            return java
    return type(value).__qualname__


_JAVA_CLASSES: tuple[tuple[type, str], ...] = (
    (bool, "java.lang.Boolean"),
    (int, "java.lang.Long"),
    (float, "java.lang.Double"),
    (str, "java.lang.String"),
    (bytes, "[B"),
    (list, "java.util.ArrayList"),
    (dict, "java.util.HashMap"),
    (Struct, "org.apache.kafka.connect.data.Struct"),
    (PyDecimal, "java.math.BigDecimal"),
)
_JAVA_NUMBERS: Mapping[Type, str] = {
    Type.INT8: "java.lang.Byte",
    Type.INT16: "java.lang.Short",
    Type.INT32: "java.lang.Integer",
    Type.FLOAT32: "java.lang.Float",
}
_PLAIN_FORM: Mapping[Type, type] = {
    Type.FLOAT32: float,
    Type.FLOAT64: float,
    Type.BOOLEAN: bool,
    Type.STRING: str,
}
_PYTHON_FORM: Mapping[Type, type | tuple[type, ...]] = {
    **_PLAIN_FORM,
    Type.BYTES: (bytes, bytearray, memoryview),
    Type.ARRAY: list,
    Type.MAP: dict,
    Type.STRUCT: Struct,
}


def validate_value(schema: Schema, value: Value, name: str | None = None) -> None:
    """Check that a value matches a schema, including nested values.

    Raises:
        DataError: The value does not match. The message is the same as in Java, with `name` as the
            field.
    """
    location = "" if name is None else f' for field: "{name}"'
    if value is None:
        if not schema.optional:
            raise DataError(
                f"Invalid value: null used for required field: "
                f"{'null' if name is None else chr(34) + name + chr(34)}, schema type: "
                f"{schema.type.name}"
            )
        return
    kind = schema.type
    if _PLAIN_FORM.get(kind) is type(value):  # most values need no further checks
        return
    bits = _INTEGER_BITS.get(kind)
    if bits is not None:
        fits = type(value) is int and -(1 << bits - 1) <= value < 1 << bits - 1
    elif schema.name == DECIMAL and kind is Type.BYTES:
        fits = isinstance(value, PyDecimal)
    else:
        fits = isinstance(value, _PYTHON_FORM[kind])
    if not fits:
        label = "" if schema.name is None else f' "{schema.name}"'
        raise DataError(
            f"Invalid Java object for schema{label} with type {kind.name}: class "
            f"{java_class_name(value)}{location}"
        )
    if kind is Type.STRUCT:
        if value.schema != schema:
            raise DataError(f"Struct schemas do not match{location}.")
        value.validate()
    elif kind is Type.ARRAY:
        assert schema.value_schema is not None
        for item in value:
            validate_value(schema.value_schema, item, name)
    elif kind is Type.MAP:
        assert schema.key_schema is not None
        assert schema.value_schema is not None
        for key, item in value.items():
            validate_value(schema.key_schema, key, name)
            validate_value(schema.value_schema, item, name)
