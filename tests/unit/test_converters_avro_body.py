"""AvroBodyReader: damaged bodies are data errors, soon and without much memory."""

from __future__ import annotations

import io
import json
import time
from collections.abc import Iterator
from itertools import count
from typing import Any

import fastavro
import pytest
from fixtures.converter_rows import by_columns, by_reference, same
from fixtures.native_decoder import reading_by, with_and_without
from fixtures.schema_registry_stub import schema_registry

from connect_py.api.errors import DataError
from connect_py.converters.avro.avro_body import AvroBodyReader
from connect_py.converters.avro.avro_converter import AvroConverter
from connect_py.converters.avro.avro_schema import avro_type

HUGE = b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01"  # 2**63 - 1
EVER_ON = b"\xff" * 11


def record(*members: Any) -> Any:
    return {
        "type": "record",
        "name": "R",
        "fields": [{"name": f"f{i}", "type": m} for i, m in enumerate(members)],
    }


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
    plain = record(
        "long", ["null", "string"], {"type": "array", "items": "int"}, ["int", "string"], "boolean"
    )
    body = b"\xac\x02" + b"\x02\x04ab" + b"\x03\x04\x02\x04\x02\x06\0" + b"\x02\x02c" + b"\x02"
    assert AvroBodyReader(plain).read(b"head" + body + b"tail", 4) == [
        150,
        "ab",
        [1, 2, 3],
        (1, "c"),
        False,
    ]


def test_text_that_is_no_utf_8_is_replaced() -> None:
    assert AvroBodyReader("string").read(b"\x04a\xff") == "a\ufffd"


def test_arrays_of_nothing_have_no_type() -> None:
    with pytest.raises(DataError, match="no bytes"):
        avro_type('{"type": "array", "items": {"type": "record", "name": "Nothing", "fields": []}}')


@with_and_without
@pytest.mark.parametrize("index", [b"\x04", b"\x01", b"\x80\x01"])
def test_union_index_beyond_two_branches_fails_in_both_forms(decoder: str, index: bytes) -> None:
    made = AvroConverter()
    data = [b"\0\0\0\0\1" + body for body in (b"\x02\x0a", index + b"\x0a", b"\x00")]
    with (
        schema_registry({1: {"schema": json.dumps(record(["null", "int"]))}}) as stub,
        reading_by(decoder),
    ):
        made.configure({"schema.registry.url": stub.url}, is_key=False)
        rows = by_reference(made, data)
        assert all(map(same, by_columns(made, data), rows))
        made.close()
    assert [isinstance(row, str) for row in rows] == [False, True, False]


@with_and_without
def test_oversized_block_count_is_an_error_in_both_forms(decoder: str) -> None:
    least = b"\xff" * 9 + b"\x01"
    made = AvroConverter()
    data = [b"\0\0\0\0\1" + body for body in (b"\x02" + least + b"\0", least + b"\x02\0", b"\0")]
    schema = {"type": "array", "items": "long"}
    with schema_registry({1: {"schema": json.dumps(schema)}}) as stub, reading_by(decoder):
        made.configure({"schema.registry.url": stub.url}, is_key=False)
        rows = by_reference(made, data)
        assert all(map(same, by_columns(made, data), rows))
        made.close()
    assert [isinstance(row, str) for row in rows] == [False, True, False]
    assert rows[0].value == [-(2**63)]


DEEP = record(
    "string",
    [
        "null",
        record(
            ["long", "null"],
            ["null", {"type": "array", "items": ["null", "bytes"]}],
            "boolean",
            "float",
        ),
    ],
    {"type": "array", "items": record(["null", "double"], ["int", "null"])},
    ["null", {"type": "fixed", "name": "F", "size": 3}],
)


def named(tree: Any, numbers: Iterator[int]) -> Any:
    """Give each record a unique name."""
    if isinstance(tree, list):
        return [named(branch, numbers) for branch in tree]
    if isinstance(tree, dict) and tree["type"] == "record":
        fields = [{**f, "type": named(f["type"], numbers)} for f in tree["fields"]]
        return {**tree, "name": f"R{next(numbers)}", "fields": fields}
    return (
        {**tree, "items": named(tree["items"], numbers)}
        if isinstance(tree, dict) and "items" in tree
        else tree
    )


@with_and_without
def test_an_index_is_found_wherever_it_stands(decoder: str) -> None:
    schema = named(DEEP, count())
    inner = {"f0": -(1 << 40), "f1": [b"x" * 70, None, b""], "f2": True, "f3": 1.5}
    empty = {"f0": None, "f1": None, "f2": False, "f3": 0.0}
    items = [{"f0": 1.0, "f1": 300}, {"f0": None, "f1": None}]
    values = [
        {"f0": "", "f1": None, "f2": [], "f3": b"abc"},
        {"f0": "é" * 100, "f1": inner, "f2": items, "f3": None},
        {"f0": "z", "f1": empty, "f2": items[:1], "f3": None},
    ]
    good = []
    for value in values:
        body = io.BytesIO()
        fastavro.schemaless_writer(body, fastavro.parse_schema(schema), value)
        good.append(b"\0\0\0\0\1" + body.getvalue())
    made = AvroConverter()
    with schema_registry({1: {"schema": json.dumps(schema)}}) as stub, reading_by(decoder):
        made.configure({"schema.registry.url": stub.url}, is_key=False)
        assert all(map(same, by_columns(made, [*good, None]), by_reference(made, [*good, None])))
        found = 0
        for message in good:
            for place in range(5, len(message)):
                if message[place] in (0, 2):  # indices are among these
                    damaged = message[:place] + b"\x04" + message[place + 1 :]
                    data = [good[0], None, damaged, good[1]]
                    rows = by_reference(made, data)
                    assert all(map(same, by_columns(made, data), rows)), place
                    found += isinstance(rows[2], str)
        made.close()
    assert found >= 15


@with_and_without
@pytest.mark.parametrize(
    "size", [1 << 20, (1 << 31) - 1, 1 << 31, 1 << 62, 1 << 70, -1, "many", None]
)
def test_a_fixed_type_of_any_size_costs_no_memory(decoder: str, size: Any) -> None:
    schema = {
        "type": "record",
        "name": "R",
        "fields": [
            {"name": "f", "type": ["null", {"type": "fixed", "name": "F", "size": size}]},
            {"name": "i", "type": "int"},
        ],
    }
    supported = isinstance(size, int) and 0 <= size < 1 << 31
    data = [b"\0\0\0\0\1\0\x02"] * (2000 if supported else 10)
    made = AvroConverter()
    with schema_registry({1: {"schema": json.dumps(schema)}}) as stub, reading_by(decoder):
        made.configure({"schema.registry.url": stub.url}, is_key=False)
        start = time.process_time()
        rows = by_columns(made, data)
        assert time.process_time() - start < 5
        made.close()
    assert all(isinstance(row, str) is not supported for row in rows)
