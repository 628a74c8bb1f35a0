"""Columns of Avro bodies by pyarrow hold what the reference form reads, whatever the bytes are."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pytest
from example_counts import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from connect_py.api.errors import DataError, NotColumnar
from connect_py.converters.avro_body import AvroBodyReader
from connect_py.converters.avro_body_columns import AvroBodyColumns

PREFIX = b"\0\0\0\0\1"
INSIDE = {
    "type": "record",
    "fields": [
        {"name": "b", "type": "boolean"},
        {"name": "d", "type": ["double", "null"]},
        {"name": "x", "type": "bytes"},
    ],
}
ORDER = {
    "type": "record",
    "fields": [
        {"name": "t", "type": ["null", "string"]},
        {"name": "n", "type": ["long", "null"]},
        {"name": "i", "type": "int"},
        {"name": "f", "type": {"type": "fixed", "size": 3}},
        {"name": "r", "type": ["null", INSIDE]},
        {"name": "s", "type": "float"},
    ],
}
BYTES = st.sampled_from([0, 1, 2, 3, 4, 6, 0x7F, 0x80, 0xFF]) | st.integers(0, 255)
BODIES = st.lists(BYTES, max_size=60).map(bytes)


def as_lists(plain: Any, value: Any) -> Any:
    """A value of a column as the reference form has it."""
    if isinstance(plain, list):
        return (
            None
            if value is None
            else as_lists(next(branch for branch in plain if branch != "null"), value)
        )
    if isinstance(plain, dict) and plain["type"] == "record":
        return [as_lists(field["type"], value[field["name"]]) for field in plain["fields"]]
    return "NaN" if isinstance(value, float) and math.isnan(value) else value


def without_nan(value: Any) -> Any:
    if isinstance(value, list):
        return [without_nan(v) for v in value]
    return "NaN" if isinstance(value, float) and math.isnan(value) else value


def read(plain: Any, *messages: bytes | None) -> tuple[list[Any], list[int]]:
    column, odd = AvroBodyColumns(plain).read(messages, PREFIX)
    column.validate(full=True)
    return column.to_pylist(), odd


@settings(max_examples=examples(1000), deadline=None)
@given(st.lists(st.none() | BODIES, min_size=1, max_size=6))
def test_what_is_not_odd_is_what_the_reference_form_reads(bodies: Sequence[bytes | None]) -> None:
    reference = AvroBodyReader(ORDER)
    values, odd = read(ORDER, *(None if body is None else PREFIX + body for body in bodies))
    for place, (body, value) in enumerate(zip(bodies, values, strict=True)):
        if body is None:
            assert value is None
            assert place not in odd
            continue
        try:
            expected = without_nan(reference.read(body))
        except DataError:
            assert place in odd
        if place in odd:
            assert value is None
        else:
            assert as_lists(ORDER, value) == expected


@pytest.mark.parametrize("number", [0, -1, 63, -64, 64, 2**31, 2**62, 2**63 - 1, -(2**63)])
def test_numbers_of_any_length_are_exact(number: int) -> None:
    rest, body = (number << 1) ^ (number >> 63), bytearray()
    while rest > 0x7F:
        body.append(rest & 0x7F | 0x80)
        rest >>= 7
    message = PREFIX + bytes([*body, rest])
    assert read("long", message, PREFIX + b"\2", message, None) == ([number, 1, number, None], [])


@pytest.mark.parametrize("body", [b"\xff" * 9 + b"\x80\0", b"\xff" * 9, b"\xff" * 40, b"\x80", b""])
def test_numbers_that_do_not_end_are_odd(body: bytes) -> None:
    assert read("long", PREFIX + body, PREFIX + b"\2") == ([None, 1], [0])
    assert read("long", PREFIX + b"\2", PREFIX + body) == ([1, None], [1])
    assert read(
        {"type": "record", "fields": [{"name": n, "type": "long"} for n in "ab"]}, PREFIX + body
    )[1] == [0]


@pytest.mark.parametrize(
    "body", [b"\x01", b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", b"\x08abc", b"\x02\xff"]
)
def test_texts_of_impossible_lengths_or_no_text_are_odd(body: bytes) -> None:
    assert read("string", PREFIX + b"\2a", PREFIX + body, PREFIX + b"\2b") == (
        ["a", None, "b"],
        [1],
    )


def test_other_prefixes_and_short_messages_are_odd() -> None:
    assert read("long", PREFIX + b"\2", b"\0\0\0\0\2\2", b"", b"\0\0", PREFIX + b"\4 and more") == (
        [1, None, None, None, 2],
        [1, 2, 3],
    )


@pytest.mark.parametrize(
    "plain", [["null", "int", "long"], ["int"], {"type": "array", "items": "int"}]
)
def test_lists_and_unions_of_several_types_have_no_columns(plain: Any) -> None:
    with pytest.raises(NotColumnar):
        AvroBodyColumns({"type": "record", "fields": [{"name": "x", "type": plain}]})
