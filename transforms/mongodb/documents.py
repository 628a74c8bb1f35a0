"""Conversion of MongoDB documents to structs with inferred schemas."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final, TypeAlias

from connect_py.api.errors import DataError, SchemaBuilderError
from connect_py.api.schema import (
    OPTIONAL_BOOLEAN,
    OPTIONAL_BYTES,
    OPTIONAL_FLOAT64,
    OPTIONAL_INT32,
    OPTIONAL_INT64,
    OPTIONAL_STRING,
    Schema,
    SchemaAndValue,
    Struct,
    Value,
    array,
    struct,
    timestamp,
)
from transforms.mongodb.extended_json import BsonValue, Document, Kind

REGULAR_EXPRESSION: Final = struct(
    ("regex", OPTIONAL_STRING),
    ("options", OPTIONAL_STRING),
    name="io.debezium.mongodb.regex",
    optional=True,
)
_SCALARS: Final[Mapping[Kind, Schema]] = {
    Kind.STRING: OPTIONAL_STRING,
    Kind.OBJECT_ID: OPTIONAL_STRING,
    Kind.DECIMAL128: OPTIONAL_STRING,
    Kind.JAVASCRIPT: OPTIONAL_STRING,
    Kind.BOOLEAN: OPTIONAL_BOOLEAN,
    Kind.DOUBLE: OPTIONAL_FLOAT64,
    Kind.INT32: OPTIONAL_INT32,
    Kind.INT64: OPTIONAL_INT64,
    Kind.DATE_TIME: timestamp(optional=True),
    Kind.TIMESTAMP: timestamp(optional=True),
    Kind.BINARY: OPTIONAL_BYTES,
    Kind.REGULAR_EXPRESSION: REGULAR_EXPRESSION,
}


class ArrayEncoding(Enum):
    """Conversions of arrays. The enum values are the values of the option."""

    ARRAY = "array"  # arrays, whose items must all have the same type
    DOCUMENT = "document"  # structs with the members _0, _1, and so on


@dataclass(frozen=True, slots=True)
class _Nothing:
    """Shape (inferred structure) of values that are all null."""


@dataclass(frozen=True, slots=True)
class _Scalar:
    kind: Kind


@dataclass(frozen=True, slots=True)
class _Fields:
    """Shape of a document. Its members have their original names."""

    members: Mapping[str, _Shape]


@dataclass(frozen=True, slots=True)
class _Items:
    item: _Shape


_Shape: TypeAlias = _Nothing | _Scalar | _Fields | _Items
_NOTHING: Final = _Nothing()


class DocumentConverter:
    """Converts documents to structs.

    A null becomes an optional string unless other items in the same array determine its type. All
    documents in an array share a schema, which contains the members of every document. Members
    without a Connect type (`Kind.OTHER`) are omitted.
    """

    def __init__(self, arrays: ArrayEncoding, adjusted: Callable[[str], str] = str) -> None:
        """Create a converter. `adjusted` maps the name of a member to a field name."""
        self._arrays = arrays
        self._adjusted = adjusted

    def converted(
        self, document: Document, name: str | None, *, optional: bool = False
    ) -> SchemaAndValue:
        """Return a document as a struct whose schema has this name.

        The name is also the prefix of the schema names of nested documents.

        Raises:
            DataError: The items of an array have different types, or a member has an empty name.
        """
        shape = self._shape_of_document(document)
        schema = self._schema(shape, name, optional=optional)
        return SchemaAndValue(
            schema, self._value(shape, schema, BsonValue(Kind.DOCUMENT, document))
        )

    def _shape(self, bson: BsonValue) -> _Shape:
        match bson.kind:
            case Kind.NULL:
                return _NOTHING
            case Kind.DOCUMENT:
                return self._shape_of_document(bson.value)
            case Kind.SCOPED_JAVASCRIPT:
                return self._shape_of_document(_scoped(bson))
            case Kind.ARRAY if self._arrays is ArrayEncoding.DOCUMENT:
                return self._shape_of_document(_numbered(bson))
            case Kind.ARRAY:
                item: _Shape = _NOTHING
                for each in bson.value:
                    if each.kind is Kind.OTHER:
                        raise DataError(
                            "an array has an item of a type that Connect does not support"
                        )
                    item = _merged(item, self._shape(each))
                return _Items(item)
        return _Scalar(bson.kind)

    def _shape_of_document(self, document: Document) -> _Fields:
        if "" in document:
            raise SchemaBuilderError("fieldName cannot be null.")
        return _Fields(
            {
                name: self._shape(value)
                for name, value in document.items()
                if value.kind is not Kind.OTHER
            }
        )

    def _schema(self, shape: _Shape, name: str | None, *, optional: bool = True) -> Schema:
        match shape:
            case _Nothing():
                return OPTIONAL_STRING
            case _Scalar(kind):
                return _SCALARS[kind]
            case _Items(item):
                return array(self._schema(item, name), optional=True)
            case _Fields(members):
                fields = [
                    (
                        field := self._adjusted(member),
                        self._schema(inside, f"{name or 'null'}.{field}"),
                    )
                    for member, inside in members.items()
                ]
                return struct(*fields, name=name, optional=optional)

    def _value(self, shape: _Shape, schema: Schema, bson: BsonValue) -> Value:
        # OTHER occurs if another document in the same array has a supported type for this member
        if bson.kind in (Kind.NULL, Kind.OTHER):
            return None
        match shape:
            case _Items(item):
                assert schema.value_schema is not None
                return [self._value(item, schema.value_schema, each) for each in bson.value]
            case _Fields(members):
                document = _document(bson)
                values = [
                    self._value(inside, field.schema, document[member])
                    if member in document
                    else None
                    for field, (member, inside) in zip(schema.fields, members.items(), strict=True)
                ]
                return Struct(schema, values)
        if bson.kind is Kind.REGULAR_EXPRESSION:
            return Struct(REGULAR_EXPRESSION, bson.value)
        if bson.kind is Kind.TIMESTAMP:
            return bson.value[0] * 1000
        return bson.value[0] if bson.kind is Kind.BINARY else bson.value


def _merged(first: _Shape, second: _Shape) -> _Shape:
    """Return a shape that covers both shapes; raise DataError if they are incompatible."""
    if first == second or second == _NOTHING:
        return first
    if first == _NOTHING:
        return second
    match first, second:
        case _Fields(members), _Fields(more):
            return _Fields(
                {
                    **{
                        name: _merged(shape, more.get(name, _NOTHING))
                        for name, shape in members.items()
                    },
                    **{name: shape for name, shape in more.items() if name not in members},
                }
            )
        case _Items(one), _Items(other):
            return _Items(_merged(one, other))
    raise DataError(
        "Array elements with different Bson types are not supported; use the array encoding "
        "'document'"
    )


def _document(bson: BsonValue) -> Document:
    if bson.kind is Kind.SCOPED_JAVASCRIPT:
        return _scoped(bson)
    document: Document = _numbered(bson) if bson.kind is Kind.ARRAY else bson.value
    return document


def _numbered(bson: BsonValue) -> Document:
    items: Sequence[BsonValue] = bson.value
    return {f"_{index}": item for index, item in enumerate(items)}


def _scoped(bson: BsonValue) -> Document:
    code, scope = bson.value
    return {"code": BsonValue(Kind.STRING, code), "scope": BsonValue(Kind.DOCUMENT, scope)}
