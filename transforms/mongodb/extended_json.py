"""MongoDB Extended JSON, the format in which Debezium writes documents."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from enum import Enum, auto
from typing import Any, Final
from uuid import UUID

from connect_py.api.errors import DataError
from connect_py.java.civil_days import days_of
from connect_py.java.strings import double_text, wrap


class Kind(Enum):
    """BSON types. The comments show the Python types of `BsonValue.value`."""

    NULL = auto()  # None
    STRING = auto()  # str
    OBJECT_ID = auto()  # str, 24 hex digits
    DECIMAL128 = auto()  # str, in Java's format
    JAVASCRIPT = auto()  # str
    BOOLEAN = auto()  # bool
    DOUBLE = auto()  # float
    INT32 = auto()  # int
    INT64 = auto()  # int
    DATE_TIME = auto()  # int, milliseconds since the epoch
    TIMESTAMP = auto()  # (seconds since the epoch, increment)
    BINARY = auto()  # (bytes, subtype)
    REGULAR_EXPRESSION = auto()  # (pattern, options)
    SCOPED_JAVASCRIPT = auto()  # (code, document)
    DOCUMENT = auto()  # Mapping[str, BsonValue]
    ARRAY = auto()  # Sequence[BsonValue]
    # the unchanged Document for a symbol, database pointer, minimum key, maximum key, or undefined
    OTHER = auto()


@dataclass(frozen=True, slots=True)
class BsonValue:
    """A value and its BSON type."""

    kind: Kind
    value: Any


Document = Mapping[str, BsonValue]

_DATE: Final = re.compile(
    r"([+-]?\d{4,9})-(\d\d)-(\d\d)(?:T(\d\d):(\d\d)(?::(\d\d)(?:\.(\d{1,9}))?)?(?:Z|([+-])(\d\d):(\d\d)))?"
)
_OBJECT_ID: Final = re.compile(r"[0-9a-fA-F]{24}")
_INTEGER: Final = re.compile(r"[+-]?\d+")
_BITS: Final = {Kind.INT32: 32, Kind.INT64: 64}
_DIGITS: Final = 34  # precision of Decimal128


def parse_document(source: str) -> Document:
    """Parse a document in legacy or canonical extended JSON, the formats that Debezium writes.

    The syntax of the MongoDB shell is not supported.

    Raises:
        DataError: The string is not a JSON object, or a value does not match its type.
    """
    bson = parse_value(source)
    if bson.kind is not Kind.DOCUMENT:
        raise DataError(f"expected a document, found {bson.kind.name}")
    document: Document = bson.value
    return document


def parse_value(source: str) -> BsonValue:
    """Parse a value; raise DataError if it is invalid. Error messages contain no data."""
    try:
        return _bson(_DECODER.decode(source))
    except json.JSONDecodeError as error:
        raise DataError(
            f"invalid extended JSON: syntax error at line {error.lineno} column {error.colno}"
        ) from None
    except (ValueError, RecursionError) as error:
        raise DataError(f"invalid extended JSON: {error}") from error


def _bson(value: Any) -> BsonValue:
    """Return a decoded JSON value with its BSON type."""
    if isinstance(value, BsonValue):
        return value
    if value is None:
        return BsonValue(Kind.NULL, None)
    if isinstance(value, bool):
        return BsonValue(Kind.BOOLEAN, value)
    if isinstance(value, str):
        return BsonValue(Kind.STRING, value)
    return BsonValue(Kind.ARRAY, tuple(_bson(item) for item in value))


def _object(pairs: Sequence[tuple[str, Any]]) -> BsonValue:
    """Return a JSON object as a document, or as the typed value that it represents."""
    members = {name: _bson(value) for name, value in pairs}
    if pairs and pairs[0][0] in _SPECIAL:
        bson = _special(members)
        if bson is not None:
            return bson
    return BsonValue(Kind.DOCUMENT, members)


def _special(members: Document) -> BsonValue | None:
    """Return the typed value that the object represents, or None if it is an ordinary document.

    A document with a member such as `$regex` can be a query expression.
    """
    names = set(members)
    if names <= {"$regex", "$options"} and "$regex" in names:
        return _regular_expression(members["$regex"], members.get("$options"))
    if names == {"$binary", "$type"}:
        return _binary(_string(members, "$binary"), members["$type"])
    if names == {"$code", "$scope"}:
        return BsonValue(
            Kind.SCOPED_JAVASCRIPT, (_string(members, "$code"), _document(members["$scope"]))
        )
    first = next(iter(members))
    read = _SINGLE.get(first)
    if read is None:
        return None
    if len(members) > 1:
        raise ValueError(f"{first} must be the only member")
    return read(members, first)


def _string(members: Document, name: str) -> str:
    bson = members[name]
    if bson.kind is not Kind.STRING:
        raise ValueError(f"{name} must be a string")
    string: str = bson.value
    return string


def _integer(bson: BsonValue) -> int:
    if bson.kind not in _BITS:
        raise ValueError("expected an integer")
    number: int = bson.value
    return number


def _document(bson: BsonValue) -> Document:
    if bson.kind is not Kind.DOCUMENT:
        raise ValueError("expected a document")
    document: Document = bson.value
    return document


def _number(kind: Kind, text: str) -> BsonValue:
    number = int(text) if _INTEGER.fullmatch(text) else None
    if number is None or wrap(number, _BITS[kind]) != number:
        raise ValueError(f"{kind.name} out of range")
    return BsonValue(kind, number)


def _json_integer(text: str) -> BsonValue:
    number = int(text)
    return _number(Kind.INT32 if wrap(number, 32) == number else Kind.INT64, text)


def _object_id(members: Document, name: str) -> BsonValue:
    digits = _string(members, name)
    if _OBJECT_ID.fullmatch(digits) is None:
        raise ValueError(f"{name} must have 24 hexadecimal digits")
    return BsonValue(Kind.OBJECT_ID, digits.lower())


def _double(members: Document, name: str) -> BsonValue:
    try:
        return BsonValue(Kind.DOUBLE, float(_string(members, name)))
    except ValueError:
        raise ValueError(f"{name} must be a number") from None  # the original error contains data


def _decimal128(members: Document, name: str) -> BsonValue:
    try:
        number = Decimal(_string(members, name))
    except InvalidOperation as error:
        raise ValueError(f"{name} must be a number") from error
    if len(number.as_tuple().digits) > _DIGITS:
        raise ValueError(f"{name} has more than {_DIGITS} digits")
    return BsonValue(Kind.DECIMAL128, str(number))


def _date(members: Document, name: str) -> BsonValue:
    bson = members[name]
    if bson.kind is Kind.STRING:
        return BsonValue(Kind.DATE_TIME, _milliseconds(bson.value))
    return BsonValue(Kind.DATE_TIME, _integer(bson))


def _milliseconds(text: str) -> int:
    match = _DATE.fullmatch(text)
    if match is None:
        raise ValueError("$date must be an ISO 8601 date and time")
    year, month, day, hour, minute, second = (int(part or 0) for part in match.groups()[:6])
    seconds = days_of(year, month, day) * 86_400 + (hour * 60 + minute) * 60 + second
    if match[8]:
        ahead = (int(match[9]) * 60 + int(match[10])) * 60
        seconds -= -ahead if match[8] == "-" else ahead
    return seconds * 1000 + int((match[7] or "").ljust(3, "0")[:3])


def _timestamp(members: Document, name: str) -> BsonValue:
    inside = _document(members[name])
    if set(inside) != {"t", "i"}:
        raise ValueError(f"{name} must have the members t and i")
    # unsigned; in Java, timestamps after 2038 are negative integers
    seconds, increment = (_integer(inside[part]) & 0xFFFF_FFFF for part in ("t", "i"))
    return BsonValue(Kind.TIMESTAMP, (seconds, increment))


def _binary(text: str, subtype: BsonValue | None) -> BsonValue:
    try:
        data = base64.b64decode(text, validate=True)
        number = 0 if subtype is None else int(str(subtype.value), 16)
    except ValueError as error:
        raise ValueError("$binary must have base64 and a subtype") from error
    return BsonValue(Kind.BINARY, (data, number))


def _binary_document(members: Document, name: str) -> BsonValue:
    inside = _document(members[name])
    if "base64" not in inside:
        raise ValueError(f"{name} must have the member base64")
    return _binary(_string(inside, "base64"), inside.get("subType"))


def _regular_expression(pattern: BsonValue, options: BsonValue | None) -> BsonValue | None:
    if pattern.kind is not Kind.STRING or (options is not None and options.kind is not Kind.STRING):
        return None
    sorted_options = "" if options is None else "".join(sorted(options.value))
    return BsonValue(Kind.REGULAR_EXPRESSION, (pattern.value, sorted_options))


def _regular_expression_document(members: Document, name: str) -> BsonValue | None:
    inside = _document(members[name])
    return (
        _regular_expression(inside["pattern"], inside.get("options"))
        if "pattern" in inside
        else None
    )


_SINGLE: Final[Mapping[str, Callable[[Document, str], BsonValue | None]]] = {
    "$oid": _object_id,
    "$numberInt": lambda members, name: _number(Kind.INT32, _string(members, name)),
    "$numberLong": lambda members, name: _number(Kind.INT64, _string(members, name)),
    "$numberDouble": _double,
    "$numberDecimal": _decimal128,
    "$date": _date,
    "$timestamp": _timestamp,
    "$binary": _binary_document,
    "$uuid": lambda members, name: BsonValue(Kind.BINARY, (UUID(_string(members, name)).bytes, 4)),
    "$regularExpression": _regular_expression_document,
    "$code": lambda members, name: BsonValue(Kind.JAVASCRIPT, _string(members, name)),
    **dict.fromkeys(
        ("$symbol", "$minKey", "$maxKey", "$undefined", "$dbPointer"),
        lambda members, name: BsonValue(Kind.OTHER, members),
    ),
}
_SPECIAL: Final = {*_SINGLE, "$regex", "$options", "$type", "$scope"}
_DECODER: Final = json.JSONDecoder(
    object_pairs_hook=_object,
    parse_int=_json_integer,
    parse_float=lambda text: BsonValue(Kind.DOUBLE, float(text)),
    parse_constant=lambda text: BsonValue(Kind.DOUBLE, float(text)),
    strict=False,
)


def canonical_text(bson: BsonValue) -> str:
    """Return a value as canonical extended JSON, with the indentation of MongoDB's Java driver."""
    return json.dumps(_tree(bson), indent=2, ensure_ascii=False)


def _tree(bson: BsonValue) -> Any:
    value = bson.value
    match bson.kind:
        case Kind.DOCUMENT:
            return {name: _tree(member) for name, member in value.items()}
        case Kind.OTHER:  # $minKey and $maxKey contain the plain number 1, not an INT32
            return {
                name: 1 if member.kind is Kind.INT32 else _tree(member)
                for name, member in value.items()
            }
        case Kind.ARRAY:
            return [_tree(item) for item in value]
        case Kind.TIMESTAMP:
            return {"$timestamp": {"t": value[0], "i": value[1]}}
        case Kind.BINARY:
            return {
                "$binary": {
                    "base64": base64.b64encode(value[0]).decode(),
                    "subType": f"{value[1]:02x}",
                }
            }
        case Kind.REGULAR_EXPRESSION:
            return {"$regularExpression": {"pattern": value[0], "options": value[1]}}
        case Kind.SCOPED_JAVASCRIPT:
            return {"$code": value[0], "$scope": _tree(BsonValue(Kind.DOCUMENT, value[1]))}
        case Kind.DATE_TIME:
            return {"$date": {"$numberLong": str(value)}}
        case Kind.DOUBLE:
            return {"$numberDouble": double_text(value)}
    name = _CANONICAL.get(bson.kind)
    return value if name is None else {name: str(value)}


_CANONICAL: Final = {
    Kind.OBJECT_ID: "$oid",
    Kind.DECIMAL128: "$numberDecimal",
    Kind.JAVASCRIPT: "$code",
    Kind.INT32: "$numberInt",
    Kind.INT64: "$numberLong",
}
