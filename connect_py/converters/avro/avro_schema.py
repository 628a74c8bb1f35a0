"""Conversion of Avro schemas to Connect schemas, as in Confluent's AvroData.

`avro_type` returns an `AvroType`, which contains the Connect schema, a plain Avro schema with the
same binary format, and two functions that convert decoded data. In the plain schema, named types
are inlined, logical types and enums are replaced with their base types, and maps are represented as
arrays of entries.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from connect_py.api.errors import DataError
from connect_py.api.schema import (
    ALIASES,
    DATE,
    DECIMAL,
    PRECISION,
    STRING,
    TIME,
    TIMESTAMP,
    Schema,
    Type,
    Value,
    date,
    decimal,
    time,
    timestamp,
)
from connect_py.converters.avro.avro_body import width
from connect_py.converters.avro.avro_values import (
    ToColumn,
    ToValue,
    array_column,
    array_value,
    decimal_column,
    decimal_value,
    leaf,
    map_column,
    narrow_column,
    no_column,
    only_branch,
    record_column,
    record_value,
    same,
    union_value,
)
from connect_py.converters.json.json_values import INTEGER_BITS
from connect_py.converters.registry import generalized_sums
from connect_py.java.strings import wrap

if TYPE_CHECKING:
    import pyarrow as pa

Tree: TypeAlias = Any  # parsed JSON

ENUM_PARAMETER: Final = "io.confluent.connect.avro.Enum"
UNION_NAME: Final = "io.confluent.connect.avro.Union"
FIXED_SIZE: Final = "connect.fixed.size"
LARGEST_FIXED: Final = (1 << 31) - 1  # bytes; limit for an Arrow column
NAMELESS: Final = "io.confluent.connect.avro.ConnectDefault"
MAP_ENTRY: Final = "MapEntry"
DEFAULT_PRECISION: Final = 64  # Java does not store this precision in the schema
LOGICAL_NAMES: Final = frozenset({DECIMAL, DATE, TIME, TIMESTAMP})
LOGICAL_TYPE: Final = (
    "logicalType"  # also a schema parameter, for types without an equivalent in Connect
)
KEPT_LOGICAL_TYPES: Final = frozenset(
    {
        "timestamp-micros",
        "timestamp-nanos",
        "local-timestamp-millis",
        "local-timestamp-micros",
        "local-timestamp-nanos",
        "time-micros",
        "uuid",
    }
)

PRIMITIVES: Mapping[str, Type] = {
    "boolean": Type.BOOLEAN,
    "int": Type.INT32,
    "long": Type.INT64,
    "float": Type.FLOAT32,
    "double": Type.FLOAT64,
    "string": Type.STRING,
    "bytes": Type.BYTES,
}
_PLAIN_KEYS: Final = frozenset(
    {
        Type.INT8,
        Type.INT16,
        Type.INT32,
        Type.INT64,
        Type.BOOLEAN,
        Type.STRING,
        Type.BYTES,
    }
)


@dataclass(frozen=True, slots=True)
class Options:
    """Options for reading schemas, named after the converter properties."""

    full_branch_names: bool = False  # enhanced.avro.schema.support
    generalized_sums: bool = False
    flatten_singletons: bool = True
    aliases: bool = False  # connect_py.aliases


@dataclass(frozen=True, slots=True)
class AvroType:
    """An Avro type, and its conversion to a Connect type."""

    schema: Schema
    plain: Tree
    value: ToValue
    """Converts a decoded value with the schema `plain`, other than None, or raises DataError."""
    column: ToColumn
    """Converts an Arrow column with the schema `plain` to `schema`, or raises NotColumnar."""
    # False if the type contains a union of several types, or a map whose keys may be null or repeat
    columnar: bool = True


def avro_type(
    text: str,
    references: Mapping[str, str] | None = None,
    version: int | None = None,
    options: Options | None = None,
) -> AvroType:
    """Convert an Avro schema.

    Args:
        text: The schema in JSON.
        references: Referenced schemas, keyed by name.
        version: Version of the schema in the registry.
        options: Converter options.

    Raises:
        DataError: The schema is invalid or has no equivalent in Connect.
    """
    reader = _SchemaReader(options or Options())
    try:
        for reference in (references or {}).values():
            reader.declare(json.loads(reference), "")
        tree = json.loads(text)
        reader.declare(tree, "")
        return reader.read(tree, "", version=version)
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
        raise DataError(f"Not an Avro schema: {error}") from error


class _SchemaReader:
    def __init__(self, options: Options) -> None:
        self._options = options
        self._declared: dict[
            str, tuple[Tree, str]
        ] = {}  # definition and enclosing namespace, keyed by full name
        self._open: list[str] = []
        self._numbers = count()
        self._unions = count()

    def declare(self, tree: Tree, namespace: str) -> None:
        """Register all named types of a schema."""
        if isinstance(tree, list):
            for branch in tree:
                self.declare(branch, namespace)
        elif isinstance(tree, dict):
            kind = tree["type"]
            if kind in ("record", "enum", "fixed", "error"):
                name = _full_name(tree, namespace)
                self._declared[name] = (tree, namespace)
                namespace = name.rpartition(".")[0]
                for field in tree.get("fields", ()):
                    self.declare(field["type"], namespace)
            elif kind == "array":
                self.declare(tree["items"], namespace)
            elif kind == "map":
                self.declare(tree["values"], namespace)
            elif not isinstance(kind, str):
                self.declare(kind, namespace)

    def read(
        self,
        tree: Tree,
        namespace: str,
        *,
        default: Tree = None,
        doc: str | None = None,
        version: int | None = None,
    ) -> AvroType:
        """Convert a schema. `default` and `doc` are attributes of the field that has this type."""
        if isinstance(tree, list):
            return self._union(tree, namespace, default, doc)
        if isinstance(tree, str):
            if tree in PRIMITIVES or tree == "null":
                tree = {"type": tree}
            else:
                definition = self._declared.get(tree) or self._declared.get(f"{namespace}.{tree}")
                if definition is None:
                    raise DataError(f"Undefined name: {tree}")
                tree, namespace = definition
        if not isinstance(tree["type"], str):
            return self.read(tree["type"], namespace, default=default, doc=doc, version=version)
        plain_type = self._plain_type(tree, namespace)
        return self._with_attributes(plain_type, tree, namespace, default, doc, version)

    def _plain_type(self, tree: Tree, namespace: str) -> AvroType:
        kind = tree["type"]
        logical = tree.get(LOGICAL_TYPE)
        if kind in ("bytes", "fixed"):
            return self._bytes(tree, kind, logical)
        if kind in ("int", "long", "string"):
            return _simple(kind, tree, logical)
        if kind in PRIMITIVES:
            return AvroType(Schema(PRIMITIVES[kind]), kind, same, leaf)
        if kind == "enum":
            return _enum(
                tree, _full_name(tree, namespace), generalized=self._options.generalized_sums
            )
        if kind in ("record", "error"):
            return self._record(tree, namespace)
        if kind == "array":
            return self._array(tree, namespace)
        if kind == "map":
            items = self.read(tree["values"], namespace)
            return _map(
                items, self._array_of(self._record_of([("key", "string"), ("value", items.plain)]))
            )
        if kind == "null":
            raise DataError("Standalone null schemas are not supported by this converter")
        return self.read(kind, namespace)  # `kind` is the name of a type

    def _bytes(self, tree: Tree, kind: str, logical: str | None) -> AvroType:
        plain: Tree = "bytes"
        parameters = {}
        if kind == "fixed":
            size = tree["size"]
            if type(size) is not int or not 0 <= size <= LARGEST_FIXED:
                raise DataError(
                    f"A fixed type of {size} bytes is not supported; the maximum is {LARGEST_FIXED}"
                )
            plain = {"type": "fixed", "name": f"F{next(self._numbers)}", "size": size}
            parameters[FIXED_SIZE] = str(size)
        if logical != "decimal":
            return AvroType(Schema(Type.BYTES, parameters=parameters), plain, same, leaf)
        scale = int(tree.get("scale", 0))
        precision = int(tree["precision"])
        if precision != DEFAULT_PRECISION:
            parameters[PRECISION] = str(precision)
        return AvroType(decimal(scale, parameters=parameters), plain, decimal_value, decimal_column)

    def _record(self, tree: Tree, namespace: str) -> AvroType:
        name = _full_name(tree, namespace)
        if name in self._open:
            raise DataError(f"The record {name} is recursive, which Connect schemas do not support")
        self._open.append(name)
        inside = name.rpartition(".")[0]
        members = [(f["name"], self._member(f, inside)) for f in tree["fields"]]
        self._open.pop()
        plain = self._record_of([(name, m.plain) for name, m in members])
        schema = Schema(Type.STRUCT, fields=[(n, m.schema) for n, m in members])
        types = [m for _, m in members]
        return AvroType(
            schema,
            plain,
            record_value([m.value for m in types]),
            record_column([m.column for m in types]),
            all(m.columnar for m in types),
        )

    def _member(self, field: Tree, namespace: str) -> AvroType:
        member = self.read(
            field["type"], namespace, default=field.get("default"), doc=field.get("doc")
        )
        aliases = field.get("aliases")
        if not (aliases and self._options.aliases):
            return member
        parameters = {**member.schema.parameters, ALIASES: ",".join(map(str, aliases))}
        return replace(member, schema=member.schema.replace(parameters=parameters))

    def _record_of(self, members: Sequence[tuple[str, Tree]]) -> Tree:
        fields = [{"name": name, "type": plain} for name, plain in members]
        return {"type": "record", "name": f"R{next(self._numbers)}", "fields": fields}

    def _array_of(self, items: Tree) -> Tree:
        if not width(items):
            raise DataError("Arrays whose items have no bytes are not supported")
        return {"type": "array", "items": items}

    def _array(self, tree: Tree, namespace: str) -> AvroType:
        items = self.read(tree["items"], namespace)
        plain = self._array_of(items.plain)
        if _is_map_entry(tree["items"]) and [f.name for f in items.schema.fields] == [
            "key",
            "value",
        ]:
            return _entries(items, plain)
        return AvroType(
            Schema(Type.ARRAY, value_schema=items.schema),
            plain,
            array_value(items.value),
            array_column(items.column),
            items.columnar,
        )

    def _union(
        self, branches: list[Tree], namespace: str, default: Tree, doc: str | None
    ) -> AvroType:
        if not branches:
            raise DataError("A union must have at least one type")
        if any(map(_is_union, branches)):
            raise DataError("A union must not directly contain another union")
        if len(branches) == 2 and "null" in branches:
            null = branches.index("null")
            branch = self.read(branches[1 - null], namespace, doc=doc)
            plain = [branch.plain, branch.plain]
            plain[null] = "null"
            return replace(branch, schema=branch.schema.replace(optional=True), plain=plain)
        if len(branches) == 1 and self._options.flatten_singletons:
            branch = self.read(branches[0], namespace, default=default, doc=doc)
            return replace(
                branch, plain=[branch.plain], value=only_branch(branch.value), columnar=False
            )
        fields: list[tuple[str, Schema]] = []
        values: list[ToValue] = []
        plains: list[Tree] = []
        for index, branch_tree in enumerate(branches):
            if branch_tree == "null":
                plains.append("null")
                continue
            branch = self.read(branch_tree, namespace)
            name = self._branch_name(branch_tree, namespace, index)
            fields.append((name, branch.schema.replace(optional=True)))
            plains.append(branch.plain)
            values.append(branch.value)
        name, parameters = UNION_NAME, {}
        if self._options.generalized_sums:
            name = generalized_sums.union_name(next(self._unions))
            parameters = {generalized_sums.UNION: name}
        schema = Schema(
            Type.STRUCT,
            name=name,
            optional="null" in branches,
            doc=doc,
            parameters=parameters,
            fields=fields,
        )
        return AvroType(schema, plains, union_value(values), no_column, columnar=False)

    def _branch_name(self, branch: Tree, namespace: str, index: int) -> str:
        if self._options.generalized_sums:
            return generalized_sums.branch_name(index)
        kind = branch if isinstance(branch, str) else branch["type"]
        if kind in ("record", "enum", "fixed", "error"):
            name = _full_name(branch, namespace)
        elif kind in PRIMITIVES or kind in ("array", "map"):
            return str(kind)
        else:
            name = kind if "." in kind or not namespace else f"{namespace}.{kind}"
        return name if self._options.full_branch_names else name.rpartition(".")[2]

    def _with_attributes(
        self,
        avro: AvroType,
        tree: Tree,
        namespace: str,
        default: Tree,
        doc: str | None,
        version: int | None,
    ) -> AvroType:
        schema = avro.schema
        changes: dict[str, Any] = {}
        doc = doc or tree.get("doc") or tree.get("connect.doc")
        if doc is not None:
            changes["doc"] = doc
        version = tree.get("connect.version", version)
        if version is not None:
            changes["version"] = int(version)
        parameters = tree.get("connect.parameters")
        if parameters:
            changes["parameters"] = {
                **schema.parameters,
                **{k: str(v) for k, v in parameters.items()},
            }
        name = tree.get("connect.name")
        if name is None and tree["type"] in ("record", "enum"):
            name = _full_name(tree, namespace)
        if name is not None and name != NAMELESS:
            if schema.name in LOGICAL_NAMES and name != schema.name:
                raise DataError(
                    f"connect.name is {name}, but the logical type requires {schema.name}"
                )
            changes["name"] = name
        if changes:
            schema = schema.replace(**changes)
        default = tree.get("connect.default") if default is None else default
        if default is not None and schema.type is not Type.STRUCT:
            schema = schema.replace(default=_default_value(schema, default))
        return replace(avro, schema=schema)


def _full_name(tree: Tree, namespace: str) -> str:
    name: str = tree["name"]
    if "." in name:
        return name
    space = tree.get("namespace", namespace)
    return f"{space}.{name}" if space else name


def _is_union(tree: Tree) -> bool:
    while isinstance(tree, dict):
        tree = tree["type"]
    return isinstance(tree, list)


def _is_map_entry(tree: Tree) -> bool:
    if not isinstance(tree, dict) or tree.get("type") != "record":
        return False
    return tree.get("connect.internal.type") == MAP_ENTRY or str(tree["name"]).endswith(MAP_ENTRY)


def _simple(kind: str, tree: Tree, logical: str | None) -> AvroType:
    connect_type = tree.get("connect.type")
    if kind == "int" and logical == "date":
        schema = date()
    elif kind == "int" and logical == "time-millis":
        schema = time()
    elif kind == "int" and connect_type in ("int8", "int16"):
        bits = INTEGER_BITS[Type(connect_type)]
        return AvroType(
            Schema(Type(connect_type)), kind, lambda _, number: wrap(number, bits), narrow_column
        )
    elif kind == "long" and logical == "timestamp-millis":
        schema = timestamp()
    else:
        parameters = (
            {LOGICAL_TYPE: logical} if logical in KEPT_LOGICAL_TYPES and logical is not None else {}
        )
        schema = Schema(PRIMITIVES[kind], parameters=parameters)
    return AvroType(schema, kind, same, leaf)


def _enum(tree: Tree, name: str, *, generalized: bool) -> AvroType:
    symbols: list[str] = list(tree["symbols"])
    try:
        "".join(symbols).encode()
    except (TypeError, UnicodeEncodeError) as error:
        raise DataError(f"The symbols of the enum {name} are invalid: {error}") from error
    if generalized:
        parameters = generalized_sums.enum_parameters(name, symbols)
    else:
        parameters = {ENUM_PARAMETER: name, **{f"{ENUM_PARAMETER}.{s}": s for s in symbols}}

    def value(schema: Schema, index: Any) -> Value:
        if not 0 <= index < len(symbols):
            raise DataError(f"the enum {name} has no symbol {index}")
        return symbols[index]

    def column(schema: Schema, data: pa.Array) -> pa.Array:
        import pyarrow as pa

        return pa.DictionaryArray.from_arrays(data, pa.array(symbols, pa.string())).cast(
            pa.string()
        )

    return AvroType(Schema(Type.STRING, parameters=parameters), "int", value, column)


def _map(items: AvroType, plain: Tree) -> AvroType:
    def value(schema: Schema, data: Any) -> Value:
        inside = schema.value_schema
        assert inside is not None
        return {k: None if v is None else items.value(inside, v) for k, v in data}

    schema = Schema(Type.MAP, key_schema=STRING, value_schema=items.schema)
    entry = Schema(Type.STRUCT, fields=[("key", STRING), ("value", items.schema)])
    entries_column = record_column([leaf, items.column])
    return AvroType(schema, plain, value, map_column(entry, entries_column), items.columnar)


def _entries(entry: AvroType, plain: Tree) -> AvroType:
    """Return the type for an array of records that have a key and a value.

    Connect writes maps in this format if their keys are not strings.
    """

    def value(schema: Schema, data: Any) -> Value:
        pairs = [entry.value(entry.schema, item).values for item in data]
        try:
            return dict(pairs)
        except TypeError as error:
            raise DataError("map keys must be primitive") from error

    keys, values = (f.schema for f in entry.schema.fields)
    schema = Schema(Type.MAP, key_schema=keys, value_schema=values)
    plain_keys = keys.type in _PLAIN_KEYS and keys.name is None and not keys.optional
    return AvroType(
        schema, plain, value, map_column(entry.schema, entry.column), entry.columnar and plain_keys
    )


def _default_value(schema: Schema, tree: Tree) -> Value:
    """Convert a default from the JSON of an Avro schema to a Connect value."""
    if schema.type is Type.BYTES and isinstance(tree, str):
        data = tree.encode("latin-1")
        return decimal_value(schema, data) if schema.name == DECIMAL else data
    if schema.type in (Type.FLOAT32, Type.FLOAT64):
        return float(tree)
    if schema.type is Type.ARRAY:
        return [_default_value(schema.value_schema, t) for t in tree]  # type: ignore[arg-type] # an ARRAY has a value schema
    if schema.type is Type.MAP and isinstance(tree, dict):
        return {k: _default_value(schema.value_schema, t) for k, t in tree.items()}  # type: ignore[arg-type] # a MAP has a value schema
    return tree
