"""Documents of MongoDB as structs: each document has the schema that its values ask for."""

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
    """What arrays become; the values are those of the option."""

    ARRAY = "array"  # all items must have one type
    DOCUMENT = "document"  # structs with the members _0, _1 and so on


@dataclass(frozen=True, slots=True)
class _Nothing:
    """Only nulls were seen."""


@dataclass(frozen=True, slots=True)
class _Scalar:
    kind: Kind


@dataclass(frozen=True, slots=True)
class _Fields:
    """A document, by the names that stand in it."""

    members: Mapping[str, _Shape]


@dataclass(frozen=True, slots=True)
class _Items:
    item: _Shape


_Shape: TypeAlias = _Nothing | _Scalar | _Fields | _Items
_NOTHING: Final = _Nothing()


class DocumentConverter:
    """Makes structs of documents.

    A null has no type of its own: an optional text, unless other items of its array say more.
    Documents in one array share a schema with the members of all. What has no type in tables
    (`Kind.OTHER`) is left out of documents.
    """

    def __init__(self, arrays: ArrayEncoding, adjusted: Callable[[str], str] = str) -> None:
        """Take the form of arrays, and how names of members become names of fields."""
        self._arrays = arrays
        self._adjusted = adjusted

    def converted(
        self, document: Document, name: str | None, *, optional: bool = False
    ) -> SchemaAndValue:
        """Return a document as a struct of a schema of that name; documents inside have it before
        their own names.

        Raises:
            DataError: Items of an array have different types, or a member has no name.
        """
        shape = self._shape_of_document(document)
        schema = self._schema(shape, name, optional=optional)
        return SchemaAndValue(
            schema, self._value(shape, schema, BsonValue(Kind.DOCUMENT, document))
        )

    def _shape(self, found: BsonValue) -> _Shape:
        match found.kind:
            case Kind.NULL:
                return _NOTHING
            case Kind.DOCUMENT:
                return self._shape_of_document(found.value)
            case Kind.SCOPED_JAVASCRIPT:
                return self._shape_of_document(_scoped(found))
            case Kind.ARRAY if self._arrays is ArrayEncoding.DOCUMENT:
                return self._shape_of_document(_numbered(found))
            case Kind.ARRAY:
                item: _Shape = _NOTHING
                for each in found.value:
                    if each.kind is Kind.OTHER:
                        raise DataError("an array holds a value of a type that tables do not have")
                    item = _merged(item, self._shape(each))
                return _Items(item)
        return _Scalar(found.kind)

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

    def _value(self, shape: _Shape, schema: Schema, found: BsonValue) -> Value:
        # others are here if the member has a type elsewhere in an array
        if found.kind in (Kind.NULL, Kind.OTHER):
            return None
        match shape:
            case _Items(item):
                assert schema.value_schema is not None
                return [self._value(item, schema.value_schema, each) for each in found.value]
            case _Fields(members):
                document = _document(found)
                values = [
                    self._value(inside, field.schema, document[member])
                    if member in document
                    else None
                    for field, (member, inside) in zip(schema.fields, members.items(), strict=True)
                ]
                return Struct(schema, values)
        if found.kind is Kind.REGULAR_EXPRESSION:
            return Struct(REGULAR_EXPRESSION, found.value)
        if found.kind is Kind.TIMESTAMP:
            return found.value[0] * 1000
        return found.value[0] if found.kind is Kind.BINARY else found.value


def _merged(left: _Shape, right: _Shape) -> _Shape:
    """One shape for both; DataError when there is none."""
    if left == right or right == _NOTHING:
        return left
    if left == _NOTHING:
        return right
    match left, right:
        case _Fields(ours), _Fields(theirs):
            return _Fields(
                {
                    **{
                        name: _merged(shape, theirs.get(name, _NOTHING))
                        for name, shape in ours.items()
                    },
                    **{name: shape for name, shape in theirs.items() if name not in ours},
                }
            )
        case _Items(one), _Items(other):
            return _Items(_merged(one, other))
    raise DataError(
        "Array elements with different Bson types are not supported: use the encoding document"
    )


def _document(found: BsonValue) -> Document:
    if found.kind is Kind.SCOPED_JAVASCRIPT:
        return _scoped(found)
    document: Document = _numbered(found) if found.kind is Kind.ARRAY else found.value
    return document


def _numbered(found: BsonValue) -> Document:
    items: Sequence[BsonValue] = found.value
    return {f"_{index}": item for index, item in enumerate(items)}


def _scoped(found: BsonValue) -> Document:
    code, scope = found.value
    return {"code": BsonValue(Kind.STRING, code), "scope": BsonValue(Kind.DOCUMENT, scope)}
