"""The native decoder accepts messages that follow the plan and reports all others."""

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

from connect_py.api.errors import DataError, NotColumnar
from connect_py.converters.avro.avro_body import AvroBodyReader
from connect_py.converters.avro.avro_converter import native_node
from connect_py.converters.native import decoder as native
from connect_py.converters.native.decoder import (
    IGNORES_UNKNOWN,
    PAIRS,
    Kind,
    NativeDecoder,
    Node,
    library,
)

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
    """Return the values of messages and the rows of odd messages."""
    decoded, odd = NativeDecoder(node).read_json(messages)
    column = decoded.array()
    column.validate(full=True)
    return column.to_pylist(), odd


def whole(row: dict[str, Any] | None) -> Any:
    """Return the row with a null for each missing member."""
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
def test_damaged_message_is_odd_or_decoded_as_msgspec_does(
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
def test_other_text_than_a_64_bit_integer_is_odd(text: bytes) -> None:
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
def test_invalid_json_strings_are_odd(text: bytes) -> None:
    assert read(Node(Kind.TEXT), text) == ([None], [0])


def test_escapes_in_json_strings_are_decoded_natively() -> None:
    text = b'"\\"\\\\\\/\\b\\f\\n\\r\\t\\u00e9\\ud83d\\ude00\\u0000"'
    assert read(Node(Kind.TEXT), text) == ([json.loads(text)], [])


@pytest.mark.parametrize(
    "text", [b'{"x":1,"x":2}', b'{"x":6}', b'{"z":1}', b'{"x":1,}', b'{"x" 1}']
)
def test_objects_that_do_not_follow_the_plan_are_odd(text: bytes) -> None:
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
    node = Node(Kind.OBJECT, low=IGNORES_UNKNOWN, children=[Node(Kind.BOOLEAN, "x")])
    text = json.dumps({"other": other, "x": True}).encode()
    assert read(node, text) == ([{"x": True}], [])
    assert read(node, text[:-1])[1] == [0]


def test_member_names_with_escapes_match_the_planned_names() -> None:
    node = Node(Kind.OBJECT, children=[Node(Kind.INT32, "x é", low=-5, high=5)])
    assert read(node, b'{"\\u0078 \\u00e9":1}', '{"x é":2}'.encode()) == (
        [{"x é": 1}, {"x é": 2}],
        [],
    )


def test_name_with_quotes_does_not_match_two_members() -> None:
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


KEYED = Node(Kind.MAP, children=[Node(Kind.TEXT, nullable=False), Node(Kind.INT64, **LONG)])
PAIRED = Node(
    Kind.MAP, low=PAIRS, children=[Node(Kind.INT64, nullable=False, **LONG), Node(Kind.TEXT)]
)


@settings(max_examples=examples(500), deadline=None)
@given(
    st.lists(
        st.none() | st.dictionaries(st.text(), st.none() | st.integers(LOWEST, HIGHEST)),
        min_size=1,
        max_size=5,
    ),
    st.booleans(),
)
def test_objects_are_decoded_as_maps(
    rows: list[dict[str, int | None] | None], ascii_only: bool
) -> None:
    messages = [
        None if row is None else json.dumps(row, ensure_ascii=ascii_only).encode() for row in rows
    ]
    values, odd = read(KEYED, *messages)
    assert odd == []
    assert values == [None if row is None else list(row.items()) for row in rows]


def test_lists_of_pairs_are_decoded_as_maps() -> None:
    messages = (b"[]", b'[[1,"a"],[-2,null]]', None, b' [ [ 1 , "b" ] ] ')
    assert read(PAIRED, *messages) == ([[], [(1, "a"), (-2, None)], None, [(1, "b")]], [])


@pytest.mark.parametrize("count", [2, 17, 400])
def test_map_that_contains_a_key_twice_is_odd(count: int) -> None:
    names = [*(f"k{i}" for i in range(count - 1)), "k0"]
    twice = "{" + ",".join(f'"{name}":1' for name in names) + "}"
    assert read(KEYED, b'{"k0":1}', twice.encode(), b'{"k0":2}') == (
        [[("k0", 1)], None, [("k0", 2)]],
        [1],
    )


def test_pairs_that_contain_a_key_twice_have_no_columns() -> None:
    with pytest.raises(NotColumnar, match="duplicate key"):
        read(PAIRED, b'[[1,"a"],[2,"b"],[1,"c"]]')


@pytest.mark.parametrize(
    "text", [b'{"a"}', b'{"a":1,}', b"{1:1}", b'{"a":true}', b"[]", b'{"a":1', b'{"\\ud800":1}']
)
def test_objects_that_are_not_maps_of_the_plan_are_odd(text: bytes) -> None:
    assert read(KEYED, b'{"b":2}', text) == ([[("b", 2)], None], [1])


@pytest.mark.parametrize(
    "text", [b"[1]", b"[[1]]", b'[[1,"a","b"]]', b'[[null,"a"]]', b"{}", b"[["]
)
def test_lists_that_are_not_maps_of_the_plan_are_odd(text: bytes) -> None:
    assert read(PAIRED, text, b'[[2,"b"]]') == ([None, [(2, "b")]], [0])


PREFIX = b"\0\0\0\0\1"
PAYMENT = {
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
        {"name": "l", "type": {"type": "array", "items": "string"}},
        {"name": "f", "type": {"type": "fixed", "size": 3}},
        {"name": "r", "type": ["null", PAYMENT]},
        {"name": "s", "type": "float"},
    ],
}
BYTES = st.sampled_from([0, 1, 2, 3, 4, 6, 0x7F, 0x80, 0xFF]) | st.integers(0, 255)
BODIES = st.lists(BYTES, max_size=60).map(bytes) | st.binary(max_size=60)


def read_avro(plain: Any, *messages: bytes | None) -> tuple[list[Any], list[int]]:
    """Return the values of Avro messages and the rows of odd messages."""
    decoded, odd = NativeDecoder(native_node(plain)).read_avro(messages, PREFIX)
    column = decoded.array()
    column.validate(full=True)
    return column.to_pylist(), odd


def as_lists(plain: Any, value: Any) -> Any:
    """Return a value of a column as the row form represents it."""
    if value is None:
        return None
    if isinstance(plain, list):
        return as_lists(next(branch for branch in plain if branch != "null"), value)
    if isinstance(plain, dict) and plain["type"] == "record":
        return [as_lists(field["type"], value[field["name"]]) for field in plain["fields"]]
    return without_nan(value)


def without_nan(value: Any) -> Any:
    if isinstance(value, list):
        return [without_nan(v) for v in value]
    return "NaN" if isinstance(value, float) and math.isnan(value) else value


@settings(max_examples=examples(1000), deadline=None)
@given(st.lists(st.none() | BODIES, min_size=1, max_size=6))
def test_decoded_avro_bodies_equal_those_of_the_row_form(bodies: Sequence[bytes | None]) -> None:
    row_form = AvroBodyReader(ORDER)
    values, odd = read_avro(ORDER, *(None if body is None else PREFIX + body for body in bodies))
    for row, (body, value) in enumerate(zip(bodies, values, strict=True)):
        if body is None:
            assert value is None
            assert row not in odd
            continue
        try:
            expected = without_nan(row_form.read(body))
        except DataError:
            assert row in odd
        if row in odd:
            assert value is None
        else:
            assert as_lists(ORDER, value) == expected


@pytest.mark.parametrize("number", [0, -1, 63, -64, 64, 2**31, 2**62, 2**63 - 1, -(2**63)])
def test_avro_numbers_of_any_length_are_exact(number: int) -> None:
    rest, body = (number << 1) ^ (number >> 63), bytearray()
    while rest > 0x7F:
        body.append(rest & 0x7F | 0x80)
        rest >>= 7
    message = PREFIX + bytes([*body, rest])
    expected = [number, 1, number, None]
    assert read_avro("long", message, PREFIX + b"\2", message, None) == (expected, [])


@pytest.mark.parametrize("body", [b"\xff" * 9 + b"\x80\0", b"\xff" * 9, b"\xff" * 40, b"\x80", b""])
def test_avro_numbers_without_an_end_are_odd(body: bytes) -> None:
    assert read_avro("long", PREFIX + body, PREFIX + b"\2") == ([None, 1], [0])
    assert read_avro("long", PREFIX + b"\2", PREFIX + body) == ([1, None], [1])
    pair = {"type": "record", "fields": [{"name": n, "type": "long"} for n in "ab"]}
    assert read_avro(pair, PREFIX + body)[1] == [0]


@pytest.mark.parametrize(
    "body", [b"\x01", b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", b"\x08abc", b"\x02\xff"]
)
def test_avro_strings_of_impossible_length_or_invalid_utf8_are_odd(body: bytes) -> None:
    messages = (PREFIX + b"\2a", PREFIX + body, PREFIX + b"\2b")
    assert read_avro("string", *messages) == (["a", None, "b"], [1])


def test_avro_messages_with_another_prefix_are_odd() -> None:
    messages = (PREFIX + b"\2", b"\0\0\0\0\2\2", b"", b"\0\0", PREFIX + b"\4 and more")
    assert read_avro("long", *messages) == ([1, None, None, None, 2], [1, 2, 3])


@pytest.mark.parametrize("plain", [["null", "int", "long"], ["int"]])
def test_avro_unions_of_several_types_have_no_columns(plain: Any) -> None:
    with pytest.raises(NotColumnar):
        native_node({"type": "record", "fields": [{"name": "x", "type": plain}]})


def test_memory_of_columns_is_freed() -> None:
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
def test_unusable_library_is_ignored(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    content: bytes | None,
) -> None:
    path = tmp_path / f"_decoder{EXTENSION_SUFFIXES[-1]}"
    # None: a library without the functions of the decoder
    path.write_bytes(content or Path(msgspec._core.__file__).read_bytes())
    monkeypatch.setattr(native, "_FOLDER", tmp_path)
    assert library.__wrapped__() is None
    assert "cannot be loaded; JSON and Avro messages are decoded row by row" in caplog.text


def test_missing_library_is_logged_once_with_the_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(native, "_FOLDER", tmp_path)
    library.cache_clear()
    try:
        for _ in range(3):
            with pytest.raises(NotColumnar):
                NativeDecoder(EVENT)
    finally:
        library.cache_clear()
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert "decoded row by row" in record.getMessage()
    assert "install a Rust compiler and run make" in record.getMessage()


def test_decoder_is_built_if_there_is_a_compiler() -> None:
    assert library() is not None
