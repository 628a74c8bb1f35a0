"""Reads and writes JSON like Jackson with the settings that Connect's JsonConverter uses."""

from __future__ import annotations

import json
import math
import re
import sys
import traceback
from collections.abc import Callable
from decimal import Decimal, InvalidOperation
from json.encoder import encode_basestring
from typing import Any, Final

from connect_py.api.errors import DataError
from connect_py.api.schema import MAX_NESTING
from connect_py.java.strings import double_text, wrap

SERIALIZATION_ERROR: Final = (
    "Converting byte[] to Kafka Connect data failed due to serialization error: "
)
LARGE_BYTES: Final = 1 << 20
MAX_DEPTH: Final = 1000
MAX_NUMBER_LENGTH: Final = 1000  # characters in an integer
_LARGEST_EXPONENT: Final = 1 << 31  # maximum exponent of a BigDecimal
MAX_NAME_LENGTH: Final = 50_000  # characters
MAX_STRING_LENGTH: Final = 20_000_000  # characters

_TOO_DEEP: Final = "Document nesting depth exceeds the maximum allowed ({})"
_BLANK = " \t\n\r"
# Replaces undecodable bytes. Such bytes may follow a value, unless the value is a number or literal
# and they directly follow it.
_UNDECODABLE = "\xaa"
_STRING = (
    r'"(?:[^"\\]++|\\.)*+"'  # possessive: backtracking would cost memory and time per character
)
_LEADING_ZEROS = re.compile(_STRING + r"|(?<![\d.eE+-])(-?)0+(?=\d)", re.DOTALL)
_ZEROS_FIRST = re.compile(r"-?0\d")
# the parser stops after a leading zero
_ZERO_BEFORE = re.compile(r"0\d")
_STRUCTURE = re.compile(_STRING + r"|[\[\]{}]", re.DOTALL)
_SURROGATE_ESCAPE = re.compile(r"\\u[dD][89a-fA-F]")
_ASTRAL = re.compile("[\U00010000-\U0010ffff]")
_CONTROL = re.compile(r"\\\\|\\u00[01][0-9a-f]")  # skips escaped backslashes


def _refuse_constant(text: str) -> Any:
    raise ValueError(f"{text} is not valid JSON")


def _exact_integer(text: str) -> int:
    if len(text) > MAX_NUMBER_LENGTH:
        raise ValueError(
            f"Number value length ({len(text)}) exceeds the maximum allowed ({MAX_NUMBER_LENGTH})"
        )
    return int(text)


def _long(text: str) -> int:
    value = _exact_integer(text)
    return value if -(1 << 63) <= value < 1 << 63 else wrap(value, 64)


def _double(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        _exact_decimal(text)
    return value


def _exact_decimal(text: str) -> Decimal | float:
    try:
        value = Decimal(text)
    except InvalidOperation as error:  # an exponent outside the range of decimals
        if math.isinf(float(text)):
            raise ValueError("Exponent overflow") from error
        return 0.0
    exponent = value.as_tuple().exponent
    if isinstance(exponent, int) and exponent > _LARGEST_EXPONENT:
        raise ValueError("Exponent overflow")
    return value


_LONGS_AND_DOUBLES = json.JSONDecoder(
    parse_int=_long, parse_float=_double, parse_constant=_refuse_constant
)
_AS_WRITTEN = json.JSONDecoder(
    parse_int=_exact_integer, parse_float=_exact_decimal, parse_constant=_refuse_constant
)


def read_json(data: bytes, *, exact: bool = False, levels: int = MAX_DEPTH) -> Any:
    """Parse the first JSON value.

    Characters after the value are ignored, leading zeros are allowed, and blank input is parsed as
    None. Unpaired surrogates become U+FFFD in strings and are not allowed in names.

    Args:
        data: The bytes, in UTF-8, UTF-16, or UTF-32.
        exact: If False, integers are wrapped to 64 bits, like `longValue` in Java, and other
            numbers are `float`. If True, numbers are `int` and `Decimal` with their exact values.
        levels: Maximum nesting depth of objects and arrays: Jackson's limit, or the limit for
            Connect values.

    Raises:
        DataError: The JSON is invalid or exceeds one of Jackson's limits.
    """
    try:
        return _read(data, _AS_WRITTEN if exact else _LONGS_AND_DOUBLES, levels)
    except (ValueError, RecursionError) as error:
        if len(data) > LARGE_BYTES:
            _release_text(error)
        raise DataError(SERIALIZATION_ERROR) from error


def _release_text(error: Exception) -> None:
    """Remove the input from an error, because the error is retained longer than the message."""
    if isinstance(error, json.JSONDecodeError):
        error.doc = ""
    traceback.clear_frames(error.__traceback__)


def check_nesting(tree: Any) -> None:
    """Check that parsed JSON can become a schemaless value.

    Raises:
        DataError: The JSON is nested too deeply.
    """
    level = [tree]
    for _ in range(MAX_NESTING + 1):
        containers = (
            v.values() if isinstance(v, dict) else v for v in level if isinstance(v, dict | list)
        )
        level = [member for members in containers for member in members]
        if not level:
            return
    raise DataError(_TOO_DEEP.format(MAX_NESTING))


def _read(data: bytes, decoder: json.JSONDecoder, levels: int) -> Any:
    try:
        text = data.decode(json.detect_encoding(data)).lstrip(_BLANK)
    except UnicodeDecodeError as error:
        text = error.object[: error.start].decode(error.encoding).lstrip(_BLANK) + _UNDECODABLE
    if not text:
        return None
    if _ZEROS_FIRST.match(text):
        text = _LEADING_ZEROS.sub(lambda m: m[1] if m[1] is not None else m[0], text)
    brackets = data.count(b"[") + data.count(b"{")
    if brackets > levels:
        _check_depth(text, levels)
    deep = brackets > MAX_DEPTH // 4
    try:
        value, end = _decode(decoder, text, deep=deep)
    except json.JSONDecodeError as error:
        if not _ZERO_BEFORE.match(text, max(0, error.pos - 1)):
            raise
        zeroless = _LEADING_ZEROS.sub(lambda m: m[1] if m[1] is not None else m[0], text)
        if zeroless == text:
            raise
        text = zeroless
        value, end = _decode(decoder, text, deep=deep)
    follower = text[end : end + 1]
    if follower and (value is None or isinstance(value, int | float | Decimal)):
        is_word = value is None or isinstance(value, bool)
        # like Java, Jackson treats DEL and any non-ASCII character as part of a literal
        if (
            (follower > "~" or ("a" + follower).isidentifier())
            if is_word
            else follower not in _BLANK
        ):
            raise ValueError("root-level values must be separated")
    if len(text) > MAX_NAME_LENGTH:
        _check_lengths(value)
    if _SURROGATE_ESCAPE.search(text):
        value = _without_lone_surrogates(value)
    return value


def _decode(decoder: json.JSONDecoder, text: str, *, deep: bool) -> tuple[Any, int]:
    if not deep:
        return decoder.raw_decode(text)
    limit = sys.getrecursionlimit()
    # the recursion limit also applies to the C scanner
    sys.setrecursionlimit(limit + 4 * MAX_DEPTH)
    try:
        return decoder.raw_decode(text)
    finally:
        sys.setrecursionlimit(limit)


def _check_depth(text: str, levels: int) -> None:
    depth = 0
    for match in _STRUCTURE.finditer(text):
        token = match[0]
        if token in "[{":
            depth += 1
            if depth > levels:
                raise ValueError(_TOO_DEEP.format(levels))
        elif token in "]}":
            depth -= 1


def _check_lengths(root: Any) -> None:
    waiting = [root]
    while waiting:
        value = waiting.pop()
        if isinstance(value, str):
            if len(value) > MAX_STRING_LENGTH:
                raise ValueError(
                    f"String value length exceeds the maximum allowed ({MAX_STRING_LENGTH})"
                )
        elif isinstance(value, list):
            waiting += value
        elif isinstance(value, dict):
            if max(map(len, value), default=0) > MAX_NAME_LENGTH:
                raise ValueError(f"Name length exceeds the maximum allowed ({MAX_NAME_LENGTH})")
            waiting += value.values()


def _without_lone_surrogates(value: Any) -> Any:
    if isinstance(value, str):
        return well_formed(value)
    if isinstance(value, list):
        return [_without_lone_surrogates(v) for v in value]
    if isinstance(value, dict):
        if any(well_formed(name) != name for name in value):
            raise ValueError("the name of a member contains a lone surrogate")
        return {name: _without_lone_surrogates(v) for name, v in value.items()}
    return value


def well_formed(text: str) -> str:
    """Return a string with its unpaired surrogates replaced with U+FFFD."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return re.sub("[\ud800-\udfff]", "\ufffd", text)
    return text


def write_json(value: Any, write_other: Callable[[Any], str] | None = None) -> str:
    """Return compact JSON like Jackson, without whitespace and with doubles formatted as in Java.

    Args:
        value: The value.
        write_other: Returns the JSON for a value that is not None, bool, int, float, str, list, or
            dict.
    """
    if value is None:
        return "null"
    kind = type(value)
    if kind is str:
        return write_string(value)
    if kind is bool:
        return "true" if value else "false"
    if kind is int:
        return str(value)
    if kind is float:
        return write_double(value)
    if kind is list:
        return "[" + ",".join([write_json(v, write_other) for v in value]) + "]"
    if kind is dict:
        members = [f"{write_string(k)}:{write_json(v, write_other)}" for k, v in value.items()]
        return "{" + ",".join(members) + "}"
    if write_other is None:
        raise TypeError(f"a {kind.__name__} cannot be written as JSON")
    return write_other(value)


def write_string(text: str) -> str:
    """Return a JSON string. Characters above U+FFFF are escaped, as in Jackson."""
    quoted = encode_basestring(text)
    if "\\u" in quoted:
        quoted = _CONTROL.sub(lambda m: m[0][:2] + m[0][2:].upper(), quoted)
    return _ASTRAL.sub(_escaped_pair, quoted)


def _escaped_pair(match: re.Match[str]) -> str:
    rest = ord(match[0]) - 0x10000
    return f"\\u{0xD800 + (rest >> 10):04X}\\u{0xDC00 + (rest & 0x3FF):04X}"


def write_double(value: float) -> str:
    """Format a number like `Double.toString` in Java. NaN and infinities become JSON strings."""
    text = double_text(value)
    return text if math.isfinite(value) else f'"{text}"'
