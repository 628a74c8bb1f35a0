"""MongoDB's extended JSON: the texts in which Debezium hands over documents, with the types of
BSON."""

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
    """The types of BSON; what `BsonValue.value` holds stands behind each."""

    NULL = auto()  # None
    STRING = auto()  # str
    OBJECT_ID = auto()  # str, 24 hex digits
    DECIMAL128 = auto()  # str, as Java prints it
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
    # Document, as it was written; symbols, database pointers, smallest and greatest key, undefined
    OTHER = auto()


@dataclass(frozen=True, slots=True)
class BsonValue:
    """A value with its type."""

    kind: Kind
    value: Any


Document = Mapping[str, BsonValue]

_MOMENT: Final = re.compile(
    r"([+-]?\d{4,9})-(\d\d)-(\d\d)(?:T(\d\d):(\d\d)(?::(\d\d)(?:\.(\d{1,9}))?)?(?:Z|([+-])(\d\d):(\d\d)))?"
)
_OBJECT_ID: Final = re.compile(r"[0-9a-fA-F]{24}")
_INTEGER: Final = re.compile(r"[+-]?\d+")
_BITS: Final = {Kind.INT32: 32, Kind.INT64: 64}
_DIGITS: Final = 34  # of a Decimal128


def parse_document(text: str) -> Document:
    """Read a document.

    Legacy and canonical forms are understood, as Debezium writes them; those of MongoDB's shell are
    not.

    Raises: DataError: The text is no JSON object, or one of its values does not fit the type that
        it names.
    """
    found = parse_value(text)
    if found.kind is not Kind.DOCUMENT:
        raise DataError(f"a document is expected, found {found.kind.name}")
    document: Document = found.value
    return document


def parse_value(text: str) -> BsonValue:
    """Read any value; DataError as for `parse_document`. No message shows what the text holds."""
    try:
        return _bson(_DECODER.decode(text))
    except json.JSONDecodeError as error:
        raise DataError(
            f"no extended JSON: no JSON at line {error.lineno} column {error.colno}"
        ) from None
    except (ValueError, RecursionError) as error:
        raise DataError(f"no extended JSON: {error}") from error


def _bson(found: Any) -> BsonValue:
    """What the JSON reader made of a value, with its type."""
    if isinstance(found, BsonValue):
        return found
    if found is None:
        return BsonValue(Kind.NULL, None)
    if isinstance(found, bool):
        return BsonValue(Kind.BOOLEAN, found)
    if isinstance(found, str):
        return BsonValue(Kind.STRING, found)
    return BsonValue(Kind.ARRAY, tuple(_bson(item) for item in found))


def _object(pairs: Sequence[tuple[str, Any]]) -> BsonValue:
    """A document, or the value of a type that JSON lacks."""
    members = {name: _bson(value) for name, value in pairs}
    if pairs and pairs[0][0] in _SPECIAL:
        made = _special(members)
        if made is not None:
            return made
    return BsonValue(Kind.DOCUMENT, members)


def _special(members: Document) -> BsonValue | None:
    """The value that such an object stands for; None: it is a document after all, an expression of
    a query perhaps."""
    names = set(members)
    if names <= {"$regex", "$options"} and "$regex" in names:
        return _regular_expression(members["$regex"], members.get("$options"))
    if names == {"$binary", "$type"}:
        return _binary(_text(members, "$binary"), members["$type"])
    if names == {"$code", "$scope"}:
        return BsonValue(
            Kind.SCOPED_JAVASCRIPT, (_text(members, "$code"), _document(members["$scope"]))
        )
    first = next(iter(members))
    read = _SINGLE.get(first)
    if read is None:
        return None
    if len(members) > 1:
        raise ValueError(f"{first} stands alone")
    return read(members, first)


def _text(members: Document, name: str) -> str:
    found = members[name]
    if found.kind is not Kind.STRING:
        raise ValueError(f"{name} needs a text")
    text: str = found.value
    return text


def _integer(found: BsonValue) -> int:
    if found.kind not in _BITS:
        raise ValueError("a whole number is expected")
    number: int = found.value
    return number


def _document(found: BsonValue) -> Document:
    if found.kind is not Kind.DOCUMENT:
        raise ValueError("a document is expected")
    document: Document = found.value
    return document


def _number(kind: Kind, text: str) -> BsonValue:
    number = int(text) if _INTEGER.fullmatch(text) else None
    if number is None or wrap(number, _BITS[kind]) != number:
        raise ValueError(f"an {kind.name} is out of its range")
    return BsonValue(kind, number)


def _json_integer(text: str) -> BsonValue:
    number = int(text)
    return _number(Kind.INT32 if wrap(number, 32) == number else Kind.INT64, text)


def _object_id(members: Document, name: str) -> BsonValue:
    text = _text(members, name)
    if _OBJECT_ID.fullmatch(text) is None:
        raise ValueError(f"{name} needs 24 hexadecimal digits")
    return BsonValue(Kind.OBJECT_ID, text.lower())


def _double(members: Document, name: str) -> BsonValue:
    try:
        return BsonValue(Kind.DOUBLE, float(_text(members, name)))
    except ValueError:
        raise ValueError(f"{name} needs a number") from None  # the cause would show the text


def _decimal128(members: Document, name: str) -> BsonValue:
    try:
        number = Decimal(_text(members, name))
    except InvalidOperation as error:
        raise ValueError(f"{name} needs a number") from error
    if len(number.as_tuple().digits) > _DIGITS:
        raise ValueError(f"{name} has more than {_DIGITS} digits")
    return BsonValue(Kind.DECIMAL128, str(number))


def _date(members: Document, name: str) -> BsonValue:
    found = members[name]
    if found.kind is Kind.STRING:
        return BsonValue(Kind.DATE_TIME, _milliseconds(found.value))
    return BsonValue(Kind.DATE_TIME, _integer(found))


def _milliseconds(text: str) -> int:
    found = _MOMENT.fullmatch(text)
    if found is None:
        raise ValueError("$date needs a moment")
    year, month, day, hour, minute, second = (int(part or 0) for part in found.groups()[:6])
    seconds = days_of(year, month, day) * 86_400 + (hour * 60 + minute) * 60 + second
    if found[8]:
        ahead = (int(found[9]) * 60 + int(found[10])) * 60
        seconds -= -ahead if found[8] == "-" else ahead
    return seconds * 1000 + int((found[7] or "").ljust(3, "0")[:3])


def _timestamp(members: Document, name: str) -> BsonValue:
    inside = _document(members[name])
    if set(inside) != {"t", "i"}:
        raise ValueError(f"{name} needs t and i")
    # Java's are signed: till 2038
    seconds, increment = (_integer(inside[part]) & 0xFFFF_FFFF for part in ("t", "i"))
    return BsonValue(Kind.TIMESTAMP, (seconds, increment))


def _binary(text: str, subtype: BsonValue | None) -> BsonValue:
    try:
        data = base64.b64decode(text, validate=True)
        number = 0 if subtype is None else int(str(subtype.value), 16)
    except ValueError as error:
        raise ValueError("$binary needs base64 and a subtype") from error
    return BsonValue(Kind.BINARY, (data, number))


def _binary_document(members: Document, name: str) -> BsonValue:
    inside = _document(members[name])
    if "base64" not in inside:
        raise ValueError(f"{name} needs base64")
    return _binary(_text(inside, "base64"), inside.get("subType"))


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
    "$numberInt": lambda members, name: _number(Kind.INT32, _text(members, name)),
    "$numberLong": lambda members, name: _number(Kind.INT64, _text(members, name)),
    "$numberDouble": _double,
    "$numberDecimal": _decimal128,
    "$date": _date,
    "$timestamp": _timestamp,
    "$binary": _binary_document,
    "$uuid": lambda members, name: BsonValue(Kind.BINARY, (UUID(_text(members, name)).bytes, 4)),
    "$regularExpression": _regular_expression_document,
    "$code": lambda members, name: BsonValue(Kind.JAVASCRIPT, _text(members, name)),
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


def canonical_text(found: BsonValue) -> str:
    """A value as canonical extended JSON, in lines as MongoDB's driver for Java sets them."""
    return json.dumps(_tree(found), indent=2, ensure_ascii=False)


def _tree(found: BsonValue) -> Any:
    value = found.value
    match found.kind:
        case Kind.DOCUMENT:
            return {name: _tree(member) for name, member in value.items()}
        case Kind.OTHER:  # the 1 of the smallest and the greatest key is no number
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
    name = _CANONICAL.get(found.kind)
    return value if name is None else {name: str(value)}


_CANONICAL: Final = {
    Kind.OBJECT_ID: "$oid",
    Kind.DECIMAL128: "$numberDecimal",
    Kind.JAVASCRIPT: "$code",
    Kind.INT32: "$numberInt",
    Kind.INT64: "$numberLong",
}
