"""AvroBodyReader: damaged bodies are data errors, soon and without much memory."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from fixtures.converter_rows import by_columns, by_reference, same
from fixtures.native_decoder import NATIVE, reading_by, with_and_without
from fixtures.schema_registry_stub import schema_registry

from connect_py.api.errors import DataError
from connect_py.converters.avro_body import AvroBodyReader
from connect_py.converters.avro_converter import AvroConverter
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
        (["null", "int"], b"\x04\x02"),
        (["null", "int"], b"\x01\x02"),
        (["int", "null"], b"\x80\x01"),
        (["int", "null"], b"\x03\x02"),
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


def test_a_lenient_reader_takes_an_index_beyond_two_branches_where_the_body_ends_as_it_should() -> None:
    assert AvroBodyReader(["null", "int"], lenient=True).read(b"\x04\x02") == 1
    assert AvroBodyReader(["int", "null"], lenient=True).read(b"\x04") is None
    with pytest.raises(DataError):
        AvroBodyReader(["null", "int"], lenient=True).read(b"\x04\x02 more")


def test_text_that_is_no_utf_8_is_replaced() -> None:
    assert AvroBodyReader("string").read(b"\x04a\xff") == "a\ufffd"


def test_arrays_of_nothing_have_no_type() -> None:
    with pytest.raises(DataError, match="no bytes"):
        avro_type('{"type": "array", "items": {"type": "record", "name": "Nothing", "fields": []}}')


@with_and_without
@pytest.mark.parametrize("index", [b"\x04", b"\x01", b"\x80\x01"])
def test_columns_find_no_branch_beyond_two_either(decoder: str, index: bytes) -> None:
    made = AvroConverter()
    data = [b"\0\0\0\0\1" + body for body in (b"\x02\x0a", index + b"\x0a", b"\x00")]
    with schema_registry({1: {"schema": json.dumps(record(["null", "int"]))}}) as stub, reading_by(decoder):
        made.configure({"schema.registry.url": stub.url}, is_key=False)
        rows = by_reference(made, data)
        assert all(map(same, by_columns(made, data), rows))
        made.close()
    assert isinstance(rows[1], str) is (decoder == NATIVE)  # polars takes the number for the other branch
