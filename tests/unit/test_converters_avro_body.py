"""AvroBodyReader: damaged bodies are data errors, soon and without much memory."""

from __future__ import annotations

import time
from typing import Any

import pytest

from connect_py.api.errors import DataError
from connect_py.converters.avro_body import AvroBodyReader
from connect_py.converters.avro_schema import avro_type

HUGE = b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01"  # 2**63 - 1
EVER_ON = b"\xff" * 11


def record(*members: Any) -> Any:
    return {"type": "record", "name": "R", "fields": [{"name": f"f{i}", "type": m} for i, m in enumerate(members)]}


@pytest.mark.parametrize(
    ("schema", "body"),
    [
        ("int", b""),
        ("int", b"\x80\x80\x80\x80\x10"),  # 2**31
        ("long", EVER_ON),
        ("double", b"\0" * 7),
        ("string", b"\x01"),  # a length of -1
        ("string", b"\x04a"),
        ("bytes", HUGE),
        ({"type": "fixed", "name": "F", "size": 3}, b"ab"),
        ({"type": "array", "items": "long"}, HUGE + b"\0"),
        ({"type": "array", "items": "long"}, b"\x02\x02"),  # no end
        (["int", "string"], b"\x04\x02"),
        (["null", "int", "string"], b"\x01"),
        (["int"], b"\x02\x02"),
        (["null", "int"], b"\x04\x02 more"),
        (record("int", "string"), b"\x02"),
    ],
)
def test_a_damaged_body_is_a_data_error_at_once(schema: Any, body: bytes) -> None:
    start = time.process_time()
    with pytest.raises(DataError):
        AvroBodyReader(schema).read(body)
    assert time.process_time() - start < 0.1


def test_values_have_their_simplest_python_form() -> None:
    plain = record("long", ["null", "string"], {"type": "array", "items": "int"}, ["int", "string"], "boolean")
    body = b"\xac\x02" + b"\x02\x04ab" + b"\x03\x04\x02\x04\x02\x06\0" + b"\x02\x02c" + b"\x02"
    assert AvroBodyReader(plain).read(b"head" + body + b"tail", 4) == [150, "ab", [1, 2, 3], (1, "c"), False]


def test_an_index_beyond_two_branches_is_taken_where_the_body_ends_as_it_should() -> None:
    assert AvroBodyReader(["null", "int"]).read(b"\x04\x02") == 1
    assert AvroBodyReader(["int", "null"]).read(b"\x04") is None


def test_text_that_is_no_utf_8_is_replaced() -> None:
    assert AvroBodyReader("string").read(b"\x04a\xff") == "a\ufffd"


def test_arrays_of_nothing_have_no_type() -> None:
    with pytest.raises(DataError, match="no bytes"):
        avro_type('{"type": "array", "items": {"type": "record", "name": "Nothing", "fields": []}}')
