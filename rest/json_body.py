"""Parser for request bodies that is as strict as the Java worker and returns the same errors.

The response to a malformed body is HTTP 500. Clients and tests compare the beginnings of the
messages. Numbers retain their original notation (`1.50` remains `1.50`), because configuration
values are strings.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, NoReturn

from rest.errors import RestError

MAX_KEYS = 10_000  # maximum for one configuration; each key is processed many times
_STRING = "java.lang.String"
_FRACTION = re.compile(r"-?[0-9]+[.eE]")
_LIST = f"java.util.ArrayList<java.util.LinkedHashMap<{_STRING},{_STRING}>>"
_MAP = "java.util.LinkedHashMap<java.lang.String,java.lang.String>"
_OBJECT_MAP = "java.util.LinkedHashMap<java.lang.String,java.lang.Object>"


class JsonScalar(str):
    """JSON number in its original notation."""

    __slots__ = ()


def _refuse_constant(name: str) -> NoReturn:
    token = name.lstrip("-")
    raise RestError(
        500, f"Non-standard token '{token}': enable `ALLOW_NON_NUMERIC_NUMBERS` to allow"
    )


def parse_json(body: bytes) -> Any:
    """Parse strict JSON. The result for an empty body is None.

    Raises:
        RestError: 500 with the parser's error message.
    """
    try:
        text = body.decode(json.detect_encoding(body), "strict").lstrip("\ufeff")
    except UnicodeDecodeError as error:
        raise RestError(500, f"Invalid UTF-8 start byte 0x{body[error.start]:02x}") from error
    if not text.strip(" \t\r\n"):
        return None
    try:
        value = json.loads(
            text, parse_int=JsonScalar, parse_float=JsonScalar, parse_constant=_refuse_constant
        )
        # an escaped lone surrogate cannot be encoded in a response
        if "\\ud" in text or "\\uD" in text:
            json.dumps(value, ensure_ascii=False).encode()
        return value
    except json.JSONDecodeError as error:
        raise RestError(500, _parser_message(text, error)) from error
    except UnicodeEncodeError as error:
        raise RestError(500, "Incomplete surrogate pair: half a character in the body") from error
    except RecursionError as error:
        raise RestError(500, "Document nesting depth exceeds the maximum allowed") from error


def _parser_message(text: str, error: json.JSONDecodeError) -> str:
    """Return the Java parser's message, followed by the position of the error."""
    where = f"\n at [Source: REDACTED; line: {error.lineno}, column: {error.colno}]"
    at = error.pos
    while at < len(text) and text[at] in " \t\r\n":
        at += 1
    if error.msg == "Invalid control character at":
        return (
            f"Illegal unquoted character ((CTRL-CHAR, code {ord(text[error.pos])})): has to be "
            f"escaped{where}"
        )
    if at >= len(text) or error.msg.startswith("Unterminated string"):
        return f"Unexpected end-of-input: expected more of the value{where}"
    character = text[at]
    minus = character == "-" and error.msg == "Expecting value"
    in_number = minus or (character == "." and text[:at].rstrip("0123456789") != text[:at])
    if in_number or error.msg.startswith("Invalid \\escape"):  # the next character is invalid
        follower = text[at + 1 : at + 2]
        if not follower:
            return f"Unexpected end-of-input: expected more of the value{where}"
        if not in_number:
            return f"Unrecognized character escape '{follower}' (code {ord(follower)}){where}"
        return (
            f"Unexpected character ('{follower}' (code {ord(follower)})) in numeric value: "
            f"expected a digit{where}"
        )
    if character in "}]" and (error.msg == "Extra data" or not text[:at].strip()):
        return f"Unexpected close marker '{character}': nothing is open{where}"
    if error.msg == "Extra data":
        if character in '{["-' or character.isdigit():
            return f"Trailing token (of type {_token_kind(text[at:])}) found after value{where}"
        return f"Unrecognized token '{_word(text, at)}': was expecting the end of the body{where}"
    if character == "0" or (character.isdigit() and text[at - 1 : at] in ("0", "-")):
        return f"Invalid numeric value: Leading zeroes not allowed{where}"
    if character.isalpha() and error.msg == "Expecting value":
        return f"Unrecognized token '{_word(text, at)}': was expecting a JSON value{where}"
    return f"Unexpected character ('{character}' (code {ord(character)})): {error.msg}{where}"


def _word(text: str, at: int) -> str:
    end = at
    while end < len(text) and (text[end].isalnum() or text[end] in "_$"):
        end += 1
    return text[at : max(end, at + 1)]


def _token_kind(text: str) -> str:
    """Return Java's name for the first token."""
    opening = {"{": "START_OBJECT", "[": "START_ARRAY", '"': "VALUE_STRING"}.get(text[0])
    return opening or ("VALUE_NUMBER_FLOAT" if _FRACTION.match(text) else "VALUE_NUMBER_INT")


def _string_of(value: Any) -> str | None:
    """Return a scalar as a string, with numbers and booleans in their original notation."""
    if value is True or value is False:
        return "true" if value else "false"
    return None if value is None else str(value)


def string_map(value: Any) -> dict[str, str | None]:
    """Return an object as a map of strings, for configurations.

    Raises:
        RestError: 500 if the value is not an object of scalars, or 413 if it has too many keys.
    """
    members = expect_object(value, _MAP)
    if len(members) > MAX_KEYS:
        raise RestError(
            413, f"A configuration has at most {MAX_KEYS} keys; this one has {len(members)}"
        )
    return {key: optional_string(member) for key, member in members.items()}


def optional_string(value: Any) -> str | None:
    """Return a scalar as a string, and null as None.

    Raises:
        RestError: 500 if the value is an object or array.
    """
    if isinstance(value, dict):
        raise RestError(500, _cannot_deserialize(_STRING, "Object", "START_OBJECT"))
    if isinstance(value, list):
        raise RestError(500, _cannot_deserialize(_STRING, "Array", "START_ARRAY"))
    return _string_of(value)


def expect_object(value: Any, java_type: str) -> Mapping[str, Any]:
    """Return the value, which must be an object.

    Raises:
        RestError: 500 if the value is not an object.
    """
    if isinstance(value, dict):
        return value
    if isinstance(value, list):
        raise RestError(500, _cannot_deserialize(java_type, "Array", "START_ARRAY"))
    if value is None:
        raise RestError(
            500,
            f'Cannot invoke "Object.getClass()" because the request entity `{java_type}` is null',
        )
    bare_type, is_map = java_type.partition("<")[0], "<" in java_type
    if is_map and type(value) is not str:
        raise RestError(500, _cannot_deserialize(java_type, *_scalar_token(value)))
    raise RestError(
        500,
        f"Cannot construct instance of `{bare_type}` (although at least one Creator exists): "
        f"no creator to deserialize from {_scalar_token(value)[0]} value",
    )


def _scalar_token(value: Any) -> tuple[str, str]:
    """Return the Java parser's names for the type and token of a scalar."""
    if isinstance(value, bool):
        return "Boolean", "VALUE_TRUE" if value else "VALUE_FALSE"
    if isinstance(value, JsonScalar):
        whole = not any(mark in value for mark in ".eE")
        return (
            ("Integer", "VALUE_NUMBER_INT") if whole else ("Floating-point", "VALUE_NUMBER_FLOAT")
        )
    return "String", "VALUE_STRING"


def expect_array(value: Any, java_type: str = _LIST) -> list[Any]:
    """Return the value, which must be an array.

    Raises:
        RestError: 500 if the value is not an array.
    """
    if isinstance(value, list):
        return value
    if value is None:
        raise RestError(
            500, 'Cannot invoke "java.util.List.size()" because the request entity is null'
        )
    kind = ("Object", "START_OBJECT") if isinstance(value, dict) else _scalar_token(value)
    raise RestError(500, _cannot_deserialize(java_type, *kind))


def object_map(value: Any) -> dict[str, Any] | None:
    """Return an object with parsed numbers, and null as None.

    Raises:
        RestError: 500 if the value is neither an object nor null.
    """
    if value is None:
        return None
    return {key: _plain(member) for key, member in expect_object(value, _OBJECT_MAP).items()}


def _plain(value: Any) -> Any:
    if isinstance(value, JsonScalar):
        return float(value) if any(mark in value for mark in ".eE") else int(value)
    if isinstance(value, dict):
        return {key: _plain(member) for key, member in value.items()}
    return [_plain(member) for member in value] if isinstance(value, list) else value


def _cannot_deserialize(java_type: str, shape: str, token: str) -> str:
    return (
        f"Cannot deserialize value of type `{java_type}` from {shape} value (token "
        f"`JsonToken.{token}`)"
    )


def check_fields(members: Mapping[str, Any], java_type: str, *fields: str) -> None:
    """Check that all members are among the entity's fields.

    Raises:
        RestError: 500 with the name of the first unknown member.
    """
    for name in members:
        if name not in fields:
            listed = ", ".join(f'"{f}"' for f in fields)
            raise RestError(
                500,
                f'Unrecognized field "{name}" (class {java_type}), not marked as ignorable '
                f"({len(fields)} known properties: {listed})",
            )
