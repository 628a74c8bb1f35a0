"""Variants are read back unchanged by a reader of the format."""

from __future__ import annotations

import itertools
import json
import struct as binary
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from iceberg_staging_rows import batch, config, record, stage, stager, table

from connect_py.api.errors import BadRows, ConfigError
from connect_py.api.schema import INT32, STRING, Schema, Struct, Type, date, struct, timestamp
from connectors.iceberg.conversion.types import JSON, TypeOptions, type_of_schema
from connectors.iceberg.conversion.variant import encode_variant


def decode(metadata: bytes, value: bytes) -> Any:
    """Python's form of a variant, straight from the format's description."""
    size = (metadata[0] >> 6) + 1
    count = int.from_bytes(metadata[1 : 1 + size], "little")
    ends = [
        int.from_bytes(metadata[1 + size * (i + 1) :][:size], "little") for i in range(count + 1)
    ]
    text = metadata[1 + size * (count + 2) :]
    names = [text[a:b].decode() for a, b in itertools.pairwise(ends)]
    return _decode(value, names)


def _decode(data: bytes, names: list[str]) -> Any:
    kind, head = data[0] & 3, data[0] >> 2
    if kind == 1:
        return data[1 : 1 + head].decode()
    if kind == 0:
        return _primitive(head, data[1:])
    size = (head & 3) + 1
    large = bool(head & (16 if kind == 2 else 4))
    width = 4 if large else 1
    count = int.from_bytes(data[1 : 1 + width], "little")
    at = 1 + width
    ids: list[int] = []
    if kind == 2:
        id_size = (head >> 2 & 3) + 1
        ids = [int.from_bytes(data[at + id_size * i :][:id_size], "little") for i in range(count)]
        at += id_size * count
    offsets = [int.from_bytes(data[at + size * i :][:size], "little") for i in range(count + 1)]
    at += size * (count + 1)
    values = [_decode(data[at + offset :], names) for offset in offsets[:-1]]
    if kind == 3:
        return values
    found = [names[i] for i in ids]
    assert found == sorted(found, key=str.encode)
    return dict(zip(found, values, strict=True))


def _primitive(kind: int, data: bytes) -> Any:
    if kind < 3:
        return (None, True, False)[kind]
    if kind <= 6:
        return int.from_bytes(data[: 1 << kind - 3], "little", signed=True)
    if kind == 7:
        return binary.unpack("<d", data[:8])[0]
    if kind in (8, 9, 10):
        unscaled = int.from_bytes(data[1 : 1 + (4 << kind - 8)], "little", signed=True)
        return Decimal(f"{unscaled}E-{data[0]}")
    if kind in (15, 16):
        length = int.from_bytes(data[:4], "little")
        return data[4 : 4 + length] if kind == 15 else data[4 : 4 + length].decode()
    sizes = {11: 4, 12: 8, 13: 8, 17: 8, 18: 8, 19: 8}
    return (kind, int.from_bytes(data[: sizes[kind]], "little", signed=True))


VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**37), 10**37)
    | st.floats(allow_nan=False)
    | st.text()
    | st.binary(),
    lambda inner: (
        st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=4), inner, max_size=5)
    ),
    max_leaves=20,
)


@given(VALUES)
def test_every_variant_value_is_decoded_as_it_was_encoded(value: Any) -> None:
    assert decode(*encode_variant(value, None)) == value


def test_objects_and_texts_beyond_one_byte_are_read_back() -> None:
    wide = {f"name {i}": i for i in range(300)}
    value = {"wide": wide, "long": "x" * 100_000, "list": list(range(300)), "d": Decimal("12.50")}
    assert decode(*encode_variant(value, None)) == value


def test_dates_and_timestamps_keep_their_variant_type_and_value() -> None:
    row = struct(
        ("d", date()),
        ("t", timestamp()),
        ("w", Schema(Type.INT64, name="io.debezium.time.MicroTimestamp")),
    )
    assert decode(*encode_variant(Struct(row, [1, 2, 3]), row)) == {
        "d": (11, 1),
        "t": (12, 2_000),
        "w": (13, 3),
    }


def test_json_texts_are_parsed_and_texts_are_not() -> None:
    json_text = Schema(Type.STRING, name=JSON)
    assert decode(*encode_variant('{"a": [1, 2.5, null]}', json_text)) == {
        "a": [1, Decimal("2.5"), None]
    }
    assert decode(*encode_variant('{"a": 1}', STRING)) == '{"a": 1}'
    with pytest.raises(ValueError, match="38 digits"):
        encode_variant("1" * 39, json_text)


def test_rows_with_a_text_that_is_no_json_are_bad(tmp_path: Path) -> None:
    have = table([("id", "int"), ("v", "variant")], folder=tmp_path)
    row = struct(("id", INT32), ("v", Schema(Type.STRING, name=JSON, optional=True)))
    rows = [
        record(Struct(row, [1, '{"a":1}']), 0),
        record(Struct(row, [2, "{"]), 1),
        record(Struct(row, [3, None]), 2),
    ]
    with pytest.raises(BadRows) as raised:
        stager(have).prepare(batch(rows))
    assert list(raised.value.errors) == [1]
    files = stage(stager(have), batch([rows[0], rows[2]]))
    read = pq.read_table(files[0].path).column("v").to_pylist()
    assert decode(read[0]["metadata"], read[0]["value"]) == {"a": 1}
    assert read[1] is None


def test_schemaless_objects_keep_what_they_lack_apart_from_null(tmp_path: Path) -> None:
    have = table([("id", "long"), ("v", "variant")], folder=tmp_path)
    files = stage(
        stager(have),
        batch(
            [
                record({"id": 1, "v": {"a": 1}}, 0),
                record({"id": 2, "v": {"a": None, "b": ["x"]}}, 1),
            ]
        ),
    )
    read = pq.read_table(files[0].path).column("v").to_pylist()
    assert [decode(v["metadata"], v["value"]) for v in read] == [{"a": 1}, {"a": None, "b": ["x"]}]


def test_new_columns_are_variants_only_where_the_format_knows_them(tmp_path: Path) -> None:
    json_text = Schema(Type.STRING, name=JSON)
    assert type_of_schema(json_text, TypeOptions.of(config())) == "string"
    assert type_of_schema(json_text, TypeOptions.of(config(ext__json_type="variant"))) == "variant"
    assert config(ext__json_type="variant").format_version() == 3
    with pytest.raises(ConfigError, match="format version 3"):
        config(ext__json_type="variant", tables__auto_create_props__format_version="2")
    assert json.loads(table([("v", "variant")]).schema)["fields"][0]["type"] == "variant"
    assert pa.types.is_struct(
        stager(table([("v", "variant")], folder=tmp_path))._converter.layout.schema.field("v").type
    )
