"""Connect schemas: the types of keys, values and header values.

Python forms of the types, in rows: INT8 to INT64 `int`, FLOAT32 and FLOAT64 `float`, BOOLEAN
`bool`, STRING `str`, BYTES `bytes`, ARRAY `list`, MAP `dict`, STRUCT `Struct`. Logical types:
Decimal is `decimal.Decimal`; Date, Time and Timestamp stay the integers that Kafka carries (days,
milliseconds of the day, milliseconds since the epoch), because topics hold moments that Python's
`datetime` cannot (24:00, years BC or with five digits).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal as PyDecimal
from enum import Enum
from functools import partial
from typing import Any, NamedTuple, TypeAlias

from connect_py.api.errors import DataError, SchemaBuilderError

Value: TypeAlias = Any  # one of the Python forms above, or None

DECIMAL = "org.apache.kafka.connect.data.Decimal"
DATE = "org.apache.kafka.connect.data.Date"
TIME = "org.apache.kafka.connect.data.Time"
TIMESTAMP = "org.apache.kafka.connect.data.Timestamp"
SCALE = "scale"  # the parameter of DECIMAL
PRECISION = "connect.decimal.precision"  # a parameter of DECIMAL that registry converters set
# either side of zero: digits of Arrow's widest decimal, whose casts check no scale themselves
MAX_DECIMAL_SCALE = 76
# digits of PostgreSQL's longest numeric; values of more than 76 have no column
MAX_DECIMAL_PRECISION = 147_455
# levels of structs, arrays and maps one in another: as deep as Arrow's own forms go
MAX_NESTING = 64
# types in one schema: named types that are used twice in one another double it at each level
MAX_SCHEMA_SIZE = 20_000
ALIASES = "connect_py.aliases"  # a parameter of ours: former names of a field, comma separated


class Type(Enum):
    """The eleven primitive and container types of Connect, and STRUCT."""

    INT8 = "int8"
    INT16 = "int16"
    INT32 = "int32"
    INT64 = "int64"
    FLOAT32 = "float"  # as JsonConverter spells it
    FLOAT64 = "double"
    BOOLEAN = "boolean"
    STRING = "string"
    BYTES = "bytes"
    ARRAY = "array"
    MAP = "map"
    STRUCT = "struct"

    __hash__ = object.__hash__  # the one of an Enum is a call into Python for each look into a dict

    @property
    def is_primitive(self) -> bool:
        return self not in _CONTAINERS


_CONTAINERS = frozenset({Type.ARRAY, Type.MAP, Type.STRUCT})
_INTEGER_BITS = {Type.INT8: 8, Type.INT16: 16, Type.INT32: 32, Type.INT64: 64}


@dataclass(frozen=True, slots=True)
class Field:
    """One member of a STRUCT schema; `index` is its place, from 0."""

    name: str
    index: int
    schema: Schema


class Schema:
    """An immutable Connect schema.

    Equality covers everything: type, optional, default, name, version, doc, parameters, fields, key
    and value schema, as Java's does. The hash is computed once, so schemas are good dictionary
    keys. Fields of a STRUCT are found by name in constant time.
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
    default: Value  # None: no default
    name: str | None
    version: int | None
    doc: str | None
    parameters: Mapping[str, str]  # empty: none
    fields: tuple[Field, ...]  # STRUCT only
    key_schema: Schema | None  # MAP only
    value_schema: Schema | None  # ARRAY and MAP

    def __init__(
        self,
        type: Type,  # noqa: A002 - Connect's word
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
        """Build a schema.

        Raises: SchemaBuilderError: Two fields share a name, a name or doc is no text, a container
            lacks its member
                schema, the default does not fit the type, a Decimal has no scale, or a scale or
                precision that no column can have, members are nested deeper than `MAX_NESTING`, or
                there are more than `MAX_SCHEMA_SIZE` of them.
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
        """The fields by their names."""
        if not (isinstance(self.name, str | None) and isinstance(self.doc, str | None)):
            raise SchemaBuilderError("the name and the doc of a schema are text")
        by_name: dict[str, Field] = {}
        for field in self.fields:
            name: object = field.name
            # half a surrogate pair
            if not isinstance(name, str) or name.encode(errors="ignore").decode() != name:
                raise SchemaBuilderError(f"the name of a field is text, not {field.name!r}")
            if field.name in by_name:
                raise SchemaBuilderError(
                    f"Cannot create field because of field name duplication {field.name}"
                )
            by_name[field.name] = field
        return by_name

    def _measures(self) -> tuple[int, int]:
        """How many levels of containers there are, and how many types."""
        if self.type not in _CONTAINERS:
            return 0, 1
        inside = [
            s
            for s in (*(f.schema for f in self.fields), self.key_schema, self.value_schema)
            if s is not None
        ]
        levels = 1 + max((s._levels for s in inside), default=0)  # type: ignore[attr-defined] # set through object.__setattr__
        if levels > MAX_NESTING:
            raise SchemaBuilderError(f"Schemas may be nested {MAX_NESTING} levels deep, not more")
        size = 1 + sum(s._size for s in inside)  # type: ignore[attr-defined] # set through object.__setattr__
        if size > MAX_SCHEMA_SIZE:
            raise SchemaBuilderError(f"Schemas may have {MAX_SCHEMA_SIZE} types in them, not more")
        return levels, size

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError("a Schema does not change")

    def __delattr__(self, name: str) -> None:
        raise AttributeError("a Schema does not change")

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(Schema, **self._arguments()), ()

    def _arguments(self) -> dict[str, Any]:
        """What the constructor was given."""
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
            # NaN is itself here
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
        """Return the field of that name, or None."""
        found: Field | None = self._by_name.get(name)  # type: ignore[attr-defined] # set through object.__setattr__
        return found

    def __getitem__(self, name: str) -> Schema:
        """Return the schema of the field of that name; KeyError when there is none."""
        found = self.field(name)
        if found is None:
            raise KeyError(name)
        return found.schema

    def replace(self, **changes: Any) -> Schema:
        """Return a schema with these constructor arguments changed."""
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
    """A STRUCT schema of these (name, schema) pairs; further arguments as for `Schema`."""
    return Schema(Type.STRUCT, fields=fields, **attributes)


def array(values: Schema, **attributes: Any) -> Schema:
    """An ARRAY schema."""
    return Schema(Type.ARRAY, value_schema=values, **attributes)


def map_of(keys: Schema, values: Schema, **attributes: Any) -> Schema:
    """A MAP schema."""
    return Schema(Type.MAP, key_schema=keys, value_schema=values, **attributes)


def decimal(scale: int, **attributes: Any) -> Schema:
    """Connect's Decimal: unscaled big-endian BYTES on the wire, `decimal.Decimal` in a row."""
    parameters = {SCALE: str(scale), **attributes.pop("parameters", {})}
    return Schema(Type.BYTES, name=DECIMAL, version=1, parameters=parameters, **attributes)


def date(**attributes: Any) -> Schema:
    """Connect's Date: INT32 days since the epoch."""
    return Schema(Type.INT32, name=DATE, version=1, **attributes)


def time(**attributes: Any) -> Schema:
    """Connect's Time: INT32 milliseconds of the day."""
    return Schema(Type.INT32, name=TIME, version=1, **attributes)


def timestamp(**attributes: Any) -> Schema:
    """Connect's Timestamp: INT64 milliseconds since the epoch, an instant (UTC)."""
    return Schema(Type.INT64, name=TIMESTAMP, version=1, **attributes)


def decimal_scale(schema: Schema) -> int:
    """The scale of a Decimal schema.

    Raises:
        DataError: The parameter is missing or no number.
    """
    text = schema.parameters.get(SCALE)
    if text is None:
        raise DataError("Invalid Decimal schema: scale parameter not found.")
    try:
        return int(text)
    except ValueError as error:
        raise DataError("Invalid scale parameter found in Decimal schema.") from error


def decimal_precision(schema: Schema) -> int | None:
    """The precision of a Decimal schema; None: the schema does not say.

    Raises:
        DataError: The parameter is no number, or beyond `MAX_DECIMAL_PRECISION`.
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
            f"A decimal has at most {MAX_DECIMAL_PRECISION} digits, the precision is {precision}"
        )
    return precision


def check_decimal_scale(scale: int) -> int:
    """Return the scale of a Decimal schema or value, if Arrow has decimals of this scale.

    Raises:
        DataError: Arrow has none: its casts would read beyond their table of powers.
    """
    if abs(scale) > MAX_DECIMAL_SCALE:
        raise DataError(
            f"A decimal's scale is at most {MAX_DECIMAL_SCALE} either side of zero, not {scale}"
        )
    return scale


class SchemaAndValue(NamedTuple):
    """A value with its schema; `(None, None)` is a true tombstone, `(None, x)` is schemaless."""

    schema: Schema | None
    value: Value


NULL = SchemaAndValue(None, None)


class Struct:
    """A row of a STRUCT schema: values by field, in the order of the schema.

    `get` reads as Java's `Struct.get`: a null is replaced by the field's schema default.
    `get_without_default` gives what is there.
    """

    __slots__ = ("schema", "values")

    def __init__(self, schema: Schema, values: Sequence[Value] | None = None) -> None:
        """Make a struct; `values`, if given, is one value per field in order and is kept, not
        copied or checked."""
        self.schema = schema
        self.values: list[Value] = [None] * len(schema.fields) if values is None else list(values)

    @classmethod
    def of(cls, schema: Schema, **values: Value) -> Struct:
        """Make a struct from named values, each checked against its field."""
        made = cls(schema)
        for name, value in values.items():
            made.put(name, value)
        return made

    def _field(self, name: str) -> Field:
        field = self.schema.field(name)
        if field is None:
            raise DataError(f"{name} is not a valid field name")
        return field

    def get(self, name: str) -> Value:
        """Return the value of a field, or its schema's default when it is null. DataError: no such
        field."""
        field = self._field(name)
        value = self.values[field.index]
        return field.schema.default if value is None else value

    __getitem__ = get

    def get_without_default(self, name: str) -> Value:
        """Return the value of a field as it is. DataError: no such field."""
        return self.values[self._field(name).index]

    def put(self, name: str, value: Value) -> Struct:
        """Set a field and return self.

        Raises:
            DataError: No such field, or the value does not fit its schema.
        """
        field = self._field(name)
        validate_value(field.schema, value, field.name)
        self.values[field.index] = value
        return self

    def validate(self) -> None:
        """Check every value against its schema; DataError names the first that does not fit."""
        for field, value in self:
            validate_value(field.schema, value, field.name)

    def read_values(self) -> list[Value]:
        """The values by field, to read and not to write into."""
        return self.values

    def shared_column(self, schema: Schema, values: Sequence[Struct | None]) -> Any:
        """The Arrow column of these structs, this one among them, if they were read from it and are
        unchanged."""
        return None

    def __iter__(self) -> Iterator[tuple[Field, Value]]:
        """Fields with their raw values (no defaults), in order."""
        return zip(self.schema.fields, self.read_values(), strict=True)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Struct):
            return NotImplemented
        return self.schema == other.schema and self.read_values() == other.read_values()

    __hash__ = None  # type: ignore[assignment] # a struct may change

    def __repr__(self) -> str:
        inside = ",".join(f"{f.name}={v}" for f, v in self if v is not None)
        return f"Struct{{{inside}}}"


def java_class_name(value: Value, schema: Schema | None = None) -> str:
    """The Java class that messages name for a value of this schema; without one an `int` is a Long,
    as in JSON."""
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
    """Check that a value fits a schema, deeply.

    Raises:
        DataError: It does not; the message is Java's, `name` is the field it names.
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
    if _PLAIN_FORM.get(kind) is type(value):  # nothing more to see; most values are such
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
