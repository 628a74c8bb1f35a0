"""Conversion of Connect schemas and values to Avro, as in Confluent's AvroData."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeAlias
from urllib.parse import quote

from connect_py.api.errors import DataError
from connect_py.api.schema import (
    DATE,
    DECIMAL,
    TIME,
    TIMESTAMP,
    Schema,
    Struct,
    Type,
    Value,
    decimal_precision,
    decimal_scale,
)
from connect_py.converters.avro.avro_schema import (
    DEFAULT_PRECISION,
    ENUM_PARAMETER,
    FIXED_SIZE,
    LOGICAL_TYPE,
    MAP_ENTRY,
    NAMELESS,
    UNION_NAME,
)
from connect_py.converters.json.json_values import unscaled, unscaled_bytes
from connect_py.converters.registry import generalized_sums
from connect_py.converters.registry.schema_registry import RegisteredSchema

Tree: TypeAlias = Any  # parsed JSON
ToDatum: TypeAlias = Callable[[Value], Any]

_PRIMITIVES: Final = {
    Type.BOOLEAN: "boolean",
    Type.INT8: "int",
    Type.INT16: "int",
    Type.INT32: "int",
    Type.INT64: "long",
    Type.FLOAT32: "float",
    Type.FLOAT64: "double",
    Type.STRING: "string",
    Type.BYTES: "bytes",
}
_LOGICAL: Final = {DATE: "date", TIME: "time-millis", TIMESTAMP: "timestamp-millis"}
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SCALARS: Final = (
    (bool, Type.BOOLEAN),
    (int, Type.INT64),
    (float, Type.FLOAT64),
    (str, Type.STRING),
    (bytes, Type.BYTES),
)


@dataclass(frozen=True, slots=True)
class Options:
    """Options for writing schemas, named after the converter properties."""

    metadata: bool = True  # connect.meta.data
    scrub_names: bool = False  # scrub.invalid.names
    enums: bool = False  # enhanced.avro.schema.support
    generalized_sums: bool = False
    ignore_defaults: bool = False  # ignore.default.for.nullables
    optional_map_keys: bool = False  # allow.optional.map.keys

    def enum_parameter(self, schema: Schema) -> str | None:
        """Return the parameter that describes an enum, or None if a plain string is written."""
        parameter = generalized_sums.ENUM if self.generalized_sums else ENUM_PARAMETER
        is_enum = schema.type is Type.STRING and parameter in schema.parameters
        return parameter if is_enum and (self.enums or self.generalized_sums) else None

    def is_map(self, keys: Schema) -> bool:
        """Return True if maps with these keys are written as Avro maps."""
        return keys.type is Type.STRING and (self.optional_map_keys or not keys.optional)


class AvroWriter:
    """Writes values that have one Connect schema."""

    indexes = b""

    def __init__(self, schema: Schema, options: Options) -> None:
        """Create the Avro schema.

        Raises:
            DataError: The schema has no equivalent in Avro.
        """
        import fastavro

        maker = _SchemaMaker(options)
        tree = maker.tree(schema)
        self.text = json.dumps(tree)
        record = next(
            (
                branch
                for branch in (tree if isinstance(tree, list) else [tree])
                if isinstance(branch, dict)
            ),
            {},
        )
        self.name: str | None = maker.full_name(record) if record.get("type") == "record" else None
        self._datum = _datum(schema, maker)
        self._parsed = _parsed(self.text, {})
        self._write = fastavro.schemaless_writer

    def by(self, registered: RegisteredSchema, *, strict: bool) -> AvroWriter:
        """Return a writer that writes the same values with another schema.

        Members are matched by name. Missing members get the default from the other schema.

        Raises:
            DataError: The schema is invalid.
        """
        writer = copy(self)
        writer._parsed = _parsed(registered.text, registered.references)
        return writer

    def write(self, value: Value) -> bytes:
        """Serialize a value to a message body.

        Raises:
            DataError: The value does not match its schema.
        """
        body = io.BytesIO()
        try:
            self._write(body, self._parsed, self._datum(value), strict_allow_default=False)
        except (TypeError, ValueError, AttributeError, KeyError, OverflowError) as error:
            raise DataError(f"The value does not match its schema: {error}") from error
        return body.getvalue()


def _parsed(text: str, references: Mapping[str, str]) -> Tree:
    """Parse a schema for fastavro.

    Logical types are removed because the values to write have the base types.
    """
    import fastavro

    names: dict[str, Any] = {}
    try:
        for reference in references.values():
            fastavro.parse_schema(
                _without_logical_types(json.loads(reference)), named_schemas=names
            )
        return fastavro.parse_schema(_without_logical_types(json.loads(text)), named_schemas=names)
    except Exception as error:  # fastavro's errors have no common base class
        raise DataError(f"The schema has no Avro equivalent: {error}") from error


def _without_logical_types(tree: Tree) -> Tree:
    if isinstance(tree, dict):
        return {k: _without_logical_types(v) for k, v in tree.items() if k != LOGICAL_TYPE}
    return list(map(_without_logical_types, tree)) if isinstance(tree, list) else tree


def schema_of(value: Value) -> Schema:
    """Infer the schema of a schemaless value.

    Raises:
        DataError: No schema can be inferred from the value.
    """
    for python, kind in _SCALARS:
        if isinstance(value, python):
            return Schema(kind)
    raise DataError("Maps and lists without a schema cannot be written as Avro")


class _SchemaMaker:
    def __init__(self, options: Options) -> None:
        self.options = options
        # records, enums, and fixed types written so far, keyed by full name
        self._written: dict[str, Schema] = {}
        self._maps = 0  # number of maps with keys other than strings

    def tree(self, schema: Schema) -> Tree:
        """Return the Avro schema, which is a union with null if the Connect schema is optional."""
        if _is_union(schema):
            branches = [self.tree(f.schema.replace(optional=False)) for f in schema.fields]
            return ["null", *branches] if schema.optional else branches
        tree = self._type(schema)
        if not schema.optional:
            return tree
        return [tree, "null"] if schema.default is not None else ["null", tree]

    def _type(self, schema: Schema) -> Tree:
        if schema.type is Type.STRUCT:
            return self._record(schema)
        if schema.type is Type.ARRAY:
            assert schema.value_schema is not None
            return self._attributed(
                {"type": "array", "items": self.tree(schema.value_schema)}, schema
            )
        if schema.type is Type.MAP:
            return self._map(schema)
        enum = self.options.enum_parameter(schema)
        if enum is not None:
            return self._enum(schema, enum)
        tree: dict[str, Any] = {"type": _PRIMITIVES[schema.type]}
        if schema.type is Type.BYTES and FIXED_SIZE in schema.parameters:
            tree = self._fixed(schema)
        if schema.type in (Type.INT8, Type.INT16) and self.options.metadata:
            tree["connect.type"] = schema.type.value
        if schema.name == DECIMAL and schema.type is Type.BYTES:
            precision = decimal_precision(schema)
            precision = DEFAULT_PRECISION if precision is None else precision
            tree |= {
                "scale": decimal_scale(schema),
                "precision": precision,
                LOGICAL_TYPE: "decimal",
            }
        elif schema.name in _LOGICAL:
            tree[LOGICAL_TYPE] = _LOGICAL[schema.name]
        elif LOGICAL_TYPE in schema.parameters:
            tree[LOGICAL_TYPE] = schema.parameters[LOGICAL_TYPE]
        tree = self._attributed(tree, schema)
        return tree["type"] if len(tree) == 1 else tree

    def _map(self, schema: Schema) -> Tree:
        keys, values = schema.key_schema, schema.value_schema
        assert keys is not None
        assert values is not None
        if self.options.is_map(keys):
            return self._attributed({"type": "map", "values": self.tree(values)}, schema)
        entry = {
            "type": "record",
            "name": self._entry_name(),
            "namespace": "io.confluent.connect.avro",
            "connect.internal.type": MAP_ENTRY,
            "fields": [
                {"name": "key", "type": self.tree(keys)},
                {"name": "value", "type": self.tree(values)},
            ],
        }
        return self._attributed({"type": "array", "items": entry}, schema)

    def _entry_name(self) -> str:
        """Return a unique name for the entries of a map. The first name is `MapEntry`."""
        self._maps += 1
        return MAP_ENTRY if self._maps == 1 else f"Map{self._maps}{MAP_ENTRY}"

    def _record(self, schema: Schema) -> Tree:
        name = self.scrubbed_full_name(schema.name or NAMELESS)
        if name in self._written:
            if self._written[name].fields != schema.fields:
                raise DataError(f"Two structs with the name {name} have different fields")
            return name
        self._written[name] = schema
        namespace, _, simple = name.rpartition(".")
        tree: dict[str, Any] = {"type": "record", "name": simple}
        if namespace:
            tree["namespace"] = namespace
        tree["fields"] = [self._field(f.name, f.schema) for f in schema.fields]
        return self._attributed(tree, schema)

    def _field(self, name: str, schema: Schema) -> Tree:
        field: dict[str, Any] = {"name": self.scrubbed(name), "type": self.tree(schema)}
        if schema.doc is not None:
            field["doc"] = schema.doc
        if schema.default is not None:
            default = _default(schema, schema.default)
            if default is not None:
                field["default"] = default
        elif schema.optional:
            field["default"] = None
        return field

    def _fixed(self, schema: Schema) -> dict[str, Any]:
        """Return a fixed type with a unique name.

        Types with the same size cannot share a definition because their other attributes may
        differ.
        """
        is_named = schema.name is not None and schema.name != DECIMAL
        name = f"{NAMELESS}{len(self._written)}"
        if is_named:
            name = self.scrubbed_full_name(schema.name or "")
        while name in self._written:
            name = f"{name}{len(self._written)}"
        self._written[name] = schema
        namespace, _, simple = name.rpartition(".")
        tree = {"type": "fixed", "name": simple, "size": int(schema.parameters[FIXED_SIZE])}
        return {**tree, "namespace": namespace} if namespace else tree

    def _enum(self, schema: Schema, parameter: str) -> Tree:
        name = self.scrubbed_full_name(schema.parameters[parameter])
        if name in self._written:
            return name
        self._written[name] = schema
        prefix = f"{parameter}."
        symbols = [k.removeprefix(prefix) for k in schema.parameters if k.startswith(prefix)]
        namespace, _, simple = name.rpartition(".")
        return {
            "type": "enum",
            "name": simple,
            **({"namespace": namespace} if namespace else {}),
            "symbols": symbols,
        }

    def _attributed(self, tree: dict[str, Any], schema: Schema) -> dict[str, Any]:
        if not self.options.metadata:
            return tree
        if schema.doc is not None:
            tree["connect.doc"] = schema.doc
        if schema.version is not None:
            tree["connect.version"] = schema.version
        avro_parameters = (LOGICAL_TYPE, FIXED_SIZE)
        parameters = {k: v for k, v in schema.parameters.items() if k not in avro_parameters}
        if parameters:
            tree["connect.parameters"] = parameters
        if schema.default is not None:
            default = _default(schema, schema.default)
            if default is not None:
                tree["connect.default"] = default
        if schema.name is not None:
            tree["connect.name"] = schema.name
        return tree

    def full_name(self, tree: Tree) -> str:
        """Return the full name of a record."""
        namespace = tree.get("namespace")
        return f"{namespace}.{tree['name']}" if namespace else str(tree["name"])

    def scrubbed_full_name(self, name: str) -> str:
        return ".".join(map(self.scrubbed, name.split(".")))

    def scrubbed(self, name: str) -> str:
        """Return a valid Avro name for `name`."""
        if _NAME.fullmatch(name):
            return name
        if not self.options.scrub_names:
            raise DataError(f"{name} is not a valid name in Avro; set scrub.invalid.names=true")
        legal = re.sub(r"[^A-Za-z0-9_]", "_", quote(name, safe=""))
        return legal if _NAME.fullmatch(legal) else f"x{legal}"


def _default(schema: Schema, value: Value) -> Tree:
    """Return a default as JSON, or None for structs and maps, whose defaults are not written."""
    if schema.type is Type.BYTES:
        data = (
            unscaled_bytes(unscaled(value, decimal_scale(schema)))
            if schema.name == DECIMAL
            else bytes(value)
        )
        return data.decode("latin-1")
    if schema.type is Type.ARRAY:
        assert schema.value_schema is not None
        return [_default(schema.value_schema, v) for v in value]
    if schema.type in (Type.STRUCT, Type.MAP):
        return None
    return value


def _datum(schema: Schema, maker: _SchemaMaker) -> ToDatum:
    """Return a function that converts a nullable value for fastavro."""
    make = _not_null(schema, maker)
    return (lambda value: None if value is None else make(value)) if schema.optional else make


def _not_null(schema: Schema, maker: _SchemaMaker) -> ToDatum:
    if schema.name == DECIMAL and schema.type is Type.BYTES:
        return partial(_decimal, decimal_scale(schema), int(schema.parameters.get(FIXED_SIZE, 0)))
    if schema.type is Type.STRUCT:
        if _is_union(schema):
            return _union(schema, maker)
        parts = [(maker.scrubbed(f.name), _member(f.schema, maker)) for f in schema.fields]
        return partial(_record, parts)
    if schema.type is Type.ARRAY:
        assert schema.value_schema is not None
        item = _datum(schema.value_schema, maker)
        return lambda value: [item(v) for v in value]
    if schema.type is Type.MAP:
        assert schema.key_schema is not None
        assert schema.value_schema is not None
        key, inside = _datum(schema.key_schema, maker), _datum(schema.value_schema, maker)
        if maker.options.is_map(schema.key_schema):
            return lambda value: {k: inside(v) for k, v in value.items()}
        return lambda value: [{"key": key(k), "value": inside(v)} for k, v in value.items()]
    return lambda value: value


def _member(schema: Schema, maker: _SchemaMaker) -> ToDatum:
    """Return a function that converts a struct member for fastavro.

    Nulls become the default unless `ignore_defaults` is set.
    """
    make = _datum(schema, maker)
    if schema.default is None or (maker.options.ignore_defaults and schema.optional):
        return make
    return lambda value: make(schema.default if value is None else value)


def _decimal(scale: int, size: int, value: Value) -> bytes:
    """Return the unscaled bytes of a decimal, padded to `size`."""
    if -value.as_tuple().exponent != scale:
        raise DataError(f"the decimal {value} does not have the scale of its schema, {scale}")
    data = unscaled_bytes(unscaled(value, scale))
    return data.rjust(size, b"\xff" if data[0] & 0x80 else b"\0")


def _is_union(schema: Schema) -> bool:
    return generalized_sums.is_union(schema) or (
        schema.type is Type.STRUCT and schema.name == UNION_NAME
    )


def _record(parts: list[tuple[str, ToDatum]], value: Struct) -> dict[str, Any]:
    return {name: make(inside) for (name, make), inside in zip(parts, value.values, strict=True)}


def _union(schema: Schema, maker: _SchemaMaker) -> ToDatum:
    makes = [_not_null(f.schema, maker) for f in schema.fields]

    def datum(value: Struct) -> Any:
        chosen = next((i for i, inside in enumerate(value.values) if inside is not None), None)
        if chosen is None:
            raise DataError("no member of the union is set")
        member = makes[chosen](value.values[chosen])
        inside = schema.fields[chosen].schema
        if inside.type is Type.STRUCT and inside.name is not None:
            return (maker.scrubbed_full_name(inside.name), member)
        return member

    return datum
