"""The native decoder takes what it is sure of, with the right value, and names the rest; nothing
breaks it."""

from __future__ import annotations

import json
import math
import os
import random
import shutil
from collections.abc import Sequence
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest
from example_counts import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from connect_py.converters import avro_reader
from connect_py.converters.avro_schema import avro_type
from connect_py.converters.native import library as native_library
from connect_py.converters.native.decoder import IGNORES_OTHERS, Kind, NativeDecoder, Node
from connect_py.converters.native.library import library

pytestmark = pytest.mark.skipif(
    library() is None and shutil.which("rustc") is None,
    reason="no Rust compiler: the native decoder was not built",
)

LOWEST, HIGHEST = -(1 << 63), (1 << 63) - 1
LONG = {"low": LOWEST, "high": HIGHEST}
ROW = (
    Node(Kind.INT64, "i", **LONG),
    Node(Kind.FLOAT64, "f"),
    Node(Kind.TEXT, "t"),
    Node(Kind.BOOLEAN, "b"),
    Node(Kind.LIST, "l", children=[Node(Kind.TEXT)]),
    Node(
        Kind.OBJECT, "o", children=[Node(Kind.INT32, "x", low=-5, high=5), Node(Kind.TEXT, "y é")]
    ),
)
EVENT = Node(Kind.OBJECT, children=ROW)
ROWS = st.fixed_dictionaries(
    {},
    optional={
        "i": st.none() | st.integers(LOWEST, HIGHEST),
        "f": st.none() | st.floats(allow_nan=False, allow_infinity=False),
        "t": st.none() | st.text(),
        "b": st.none() | st.booleans(),
        "l": st.none() | st.lists(st.none() | st.text(max_size=3)),
        "o": st.none()
        | st.fixed_dictionaries({}, optional={"x": st.integers(-5, 5), "y é": st.text(max_size=3)}),
    },
)


def read(node: Node, *messages: bytes | None) -> tuple[list[Any], list[int]]:
    """What is made of messages, in Python's values, and which are odd."""
    decoded, odd = NativeDecoder(node).read_json(messages)
    column = decoded.array()
    column.validate(full=True)
    return column.to_pylist(), odd


def whole(row: dict[str, Any] | None) -> Any:
    """The same with a null for each member that is missing."""
    if row is None:
        return None
    full = {node.name: row.get(node.name) for node in ROW}
    inside = full["o"]
    return {
        **full,
        "o": None if inside is None else {"x": inside.get("x"), "y é": inside.get("y é")},
    }


@settings(max_examples=examples(1000), deadline=None)
@given(
    st.lists(st.none() | ROWS, min_size=1, max_size=6),
    st.booleans(),
    st.sampled_from([None, 1]),
    st.randoms(),
)
def test_objects_are_read_as_they_were_written(
    rows: list[dict[str, Any] | None], ascii_only: bool, indent: int | None, order: random.Random
) -> None:
    messages: list[bytes | None] = []
    for row in rows:
        members = list((row or {}).items())
        order.shuffle(members)
        text = json.dumps(dict(members), ensure_ascii=ascii_only, indent=indent)
        messages.append(None if row is None else text.encode())
    values, odd = read(EVENT, *messages)
    assert odd == []
    assert values == [whole(row) for row in rows]


@settings(max_examples=examples(2000), deadline=None)
@given(ROWS, st.lists(st.tuples(st.integers(0, 400), st.integers(0, 300)), min_size=1, max_size=3))
def test_a_damaged_message_is_odd_or_means_what_it_says(
    row: dict[str, Any], damages: list[tuple[int, int]]
) -> None:
    damaged = bytearray(json.dumps(row).encode())
    for place, byte in damages:
        at = place % (len(damaged) + 1)
        damaged[at : at + (byte > 255)] = bytes([byte]) if byte < 256 else b""
    good = json.dumps(row).encode()
    values, odd = read(EVENT, good, bytes(damaged), good)
    assert values[0] == values[2] == whole(row)
    if odd == [1]:
        assert values[1] is None
        return
    assert odd == []
    assert values[1] == whole(msgspec.json.decode(bytes(damaged)))


@settings(max_examples=examples(2000), deadline=None)
@given(
    st.from_regex(r"-?(0|[1-9][0-9]{0,30})(\.[0-9]{1,30})?([eE][+-]?[0-9]{1,3})?", fullmatch=True)
)
def test_decoded_numbers_are_the_nearest_doubles_to_their_text(text: str) -> None:
    ((value,), odd) = read(Node(Kind.FLOAT64), text.encode())
    if odd:
        integer = "." not in text and "e" not in text.lower()
        assert math.isinf(float(text)) or (integer and (abs(int(text)) > 1 << 53 or text == "-0"))
        return
    assert repr(value) == repr(float(text))


@pytest.mark.parametrize("number", [0, -1, HIGHEST, LOWEST, 10**17, 10**18 - 1, 10**18, -(10**18)])
def test_integers_up_to_64_bits_are_exact(number: int) -> None:
    assert read(Node(Kind.INT64, **LONG), str(number).encode()) == ([number], [])


@pytest.mark.parametrize(
    "text",
    [
        b"9223372036854775808",
        b"-9223372036854775809",
        b"1.0",
        b"1e3",
        b"01",
        b"-",
        b"+1",
        b"",
        b" ",
        b"1 1",
        b'"1"',
        b"true",
        b"nul",
        b"-0",
        b"[1]",
        b"0x1",
        b"1_0",
        b"\xef\xbb\xbf1",
        b"NaN",
        b"1\0",
    ],
)
def test_what_is_no_integer_of_64_bits_is_odd(text: bytes) -> None:
    assert read(Node(Kind.INT64, **LONG), text) == ([None], [0])


@pytest.mark.parametrize(
    "text",
    [
        b'"\\ud800"',
        b'"\\udc00\\ud800"',
        b'"\\ud800x"',
        b'"\\u12"',
        b'"\\x"',
        b'"a',
        b'"\n"',
        b'"\xff"',
        b'"\\',
        b'"\xed\xa0\x80"',
    ],
)
def test_texts_that_are_no_text_are_odd(text: bytes) -> None:
    assert read(Node(Kind.TEXT), text) == ([None], [0])


def test_escapes_in_json_strings_are_decoded_natively() -> None:
    text = b'"\\"\\\\\\/\\b\\f\\n\\r\\t\\u00e9\\ud83d\\ude00\\u0000"'
    assert read(Node(Kind.TEXT), text) == ([json.loads(text)], [])


@pytest.mark.parametrize(
    "text", [b'{"x":1,"x":2}', b'{"x":6}', b'{"z":1}', b'{"x":1,}', b'{"x" 1}']
)
def test_objects_that_are_not_of_the_plan_are_odd(text: bytes) -> None:
    node = Node(Kind.OBJECT, children=[Node(Kind.INT32, "x", low=-5, high=5)])
    assert read(node, text) == ([None], [0])


TREES = st.recursive(
    st.none() | st.booleans() | st.integers(LOWEST, HIGHEST) | st.floats(-1e9, 1e9) | st.text(),
    lambda inside: (
        st.lists(inside, max_size=3) | st.dictionaries(st.text(max_size=3), inside, max_size=3)
    ),
    max_leaves=9,
)


@settings(max_examples=300, deadline=None)
@given(TREES)
def test_members_outside_the_plan_are_skipped_when_plan_allows(other: Any) -> None:
    node = Node(Kind.OBJECT, low=IGNORES_OTHERS, children=[Node(Kind.BOOLEAN, "x")])
    text = json.dumps({"other": other, "x": True}).encode()
    assert read(node, text) == ([{"x": True}], [])
    assert read(node, text[:-1])[1] == [0]


def test_member_names_with_escapes_match_the_planned_names() -> None:
    node = Node(Kind.OBJECT, children=[Node(Kind.INT32, "x é", low=-5, high=5)])
    assert read(node, b'{"\\u0078 \\u00e9":1}', '{"x é":2}'.encode()) == (
        [{"x é": 1}, {"x é": 2}],
        [],
    )


def test_a_name_of_quotes_is_no_two_members() -> None:
    node = Node(Kind.OBJECT, children=[Node(Kind.INT32, 'a":1,"b', low=-5, high=5)])
    assert read(node, b'{"a":1,"b":2}')[1] == [0]
    assert read(node, b'{"a\\":1,\\"b":2}') == ([{'a":1,"b': 2}], [])


def test_wide_objects_find_members_in_any_order() -> None:
    names = [f"member{i}" for i in range(2000)]
    node = Node(Kind.OBJECT, children=[Node(Kind.INT64, name, **LONG) for name in names])
    row = {name: i for i, name in enumerate(names)}
    shuffled = dict(random.Random(1).sample(sorted(row.items()), len(row)))
    values, odd = read(
        node, json.dumps(row).encode(), json.dumps(shuffled).encode(), b'{"member7":1}'
    )
    assert odd == []
    assert values[0] == values[1] == row
    assert [name for name, value in values[2].items() if value is not None] == ["member7"]


ORDER = {
    "type": "record",
    "name": "O",
    "fields": [
        {"name": "t", "type": ["null", "string"]},
        {"name": "n", "type": ["long", "null"]},
        {"name": "i", "type": "int"},
        {"name": "l", "type": {"type": "array", "items": "string"}},
        {"name": "f", "type": {"type": "fixed", "name": "F", "size": 3}},
        {"name": "d", "type": "double"},
        {"name": "b", "type": "boolean"},
    ],
}


@settings(max_examples=examples(1000), deadline=None)
@given(st.lists(st.binary(max_size=60), min_size=1, max_size=4))
def test_no_bytes_break_the_reading_of_avro(bodies: Sequence[bytes]) -> None:
    decoder = NativeDecoder(avro_reader._node(avro_type(json.dumps(ORDER)).plain))
    decoded, odd = decoder.read_avro([b"\0\0\0\0\1" + body for body in bodies], b"\0\0\0\0\1")
    array = decoded.array()
    array.validate(full=True)
    assert [place for place, valid in enumerate(array.is_valid().to_pylist()) if not valid] == odd


def test_memory_of_columns_is_given_back() -> None:
    message = json.dumps({"i": 1, "t": "x" * 1000, "l": ["y" * 100] * 10}).encode()
    decoder = NativeDecoder(EVENT)
    process = psutil.Process(os.getpid())
    for _ in range(20):
        decoder.read_json([message] * 2000)[0].array()
    before = process.memory_info().rss
    for _ in range(200):  # some 800 MB
        decoder.read_json([message] * 2000)[0].array()
    assert process.memory_info().rss - before < 100 << 20


def test_decoded_columns_stay_readable_after_decoder_is_deleted() -> None:
    decoder = NativeDecoder(EVENT)
    column = decoder.read_json([b'{"t":"kept"}'] * 5)[0].array().field("t")
    del decoder
    assert column.to_pylist() == ["kept"] * 5


@pytest.mark.parametrize("content", [b"", b"no library", None])
def test_a_library_that_does_not_fit_is_left_out(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    content: bytes | None,
) -> None:
    path = tmp_path / f"_decoder{EXTENSION_SUFFIXES[-1]}"
    # None: a library, but not ours
    path.write_bytes(content or Path(msgspec._core.__file__).read_bytes())
    monkeypatch.setattr(native_library, "__file__", str(tmp_path / "library.py"))
    assert native_library.library.__wrapped__() is None
    assert "cannot be used" in caplog.text


def test_the_decoder_was_built_where_a_compiler_is() -> None:
    assert library() is not None
