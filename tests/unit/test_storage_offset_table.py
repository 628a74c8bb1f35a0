"""Offsets of source partitions, with keys in the order of Java's hash maps."""

from __future__ import annotations

import pytest

from connect_py.api.errors import DataError
from connect_py.storage import compact_json
from connect_py.storage.offset_table import OffsetTable, check_primitives, new_key


def table(*records: tuple[bytes, bytes | None]) -> OffsetTable:
    made = OffsetTable()
    for key, value in records:
        made.apply(0, 0, key, value)
    return made


def test_members_of_a_partition_are_found_in_any_order() -> None:
    made = table((b'["c",{"zz":1,"aa":"x"}]', b'{"position":5}'))
    assert made.get("c", {"aa": "x", "zz": 1}) == {"position": 5}
    assert made.get("c", {"aa": "x", "zz": 1.0}) == {"position": 5}
    assert made.get("c", {"aa": "x", "zz": True}) is None
    assert made.get("d", {"aa": "x", "zz": 1}) is None


def test_writes_reuse_the_key_that_java_wrote() -> None:
    made = table((b'["c",{"zz":1,"aa":"x"}]', b'{"position":5}'))
    assert made.records("c", {"aa": "x", "zz": 1}, {"position": 6}) == [
        (b'["c",{"zz":1,"aa":"x"}]', b'{"position":6}')
    ]
    assert made.records("c", {"file": "é"}, {"position": 1}) == [
        ('["c",{"file":"é"}]'.encode(), b'{"position":1}')
    ]
    assert made.records("c", None, {"position": 1}) == [(b'["c",null]', b'{"position":1}')]


def test_new_keys_have_the_order_of_javas_hash_maps() -> None:
    """Recorded from a Java worker."""
    partition = {"filename": "/a", "n": -1, "f": 1.5, "t": True, "none": None, "text": "x"}
    assert (
        new_key("c", partition)
        == b'["c",{"filename":"/a","t":true,"f":1.5,"none":null,"text":"x","n":-1}]'
    )
    assert new_key("c", {"zz": 1, "filename": 2, "aa": 3}) == b'["c",{"zz":1,"aa":3,"filename":2}]'
    assert new_key("c", None) == b'["c",null]'
    assert new_key("c", {}) == b'["c",{}]'


def test_reset_kills_every_variant_of_a_key() -> None:
    first, second = b'["c",{"zz":1,"aa":2}]', b'["c",{"aa":2,"zz":1}]'
    made = table((first, b'{"p":1}'), (second, b'{"p":2}'))
    assert made.offsets("c") == [({"aa": 2, "zz": 1}, {"p": 2})]
    killed = made.records("c", {"aa": 2, "zz": 1}, None)
    assert killed == [(first, None), (second, None)]
    for key, value in killed:
        made.apply(0, 0, key, value)
    assert made.offsets("c") == []


def test_other_variant_counts_again_when_the_newest_is_deleted() -> None:
    first, second = b'["c",{"zz":1,"aa":2}]', b'["c",{"aa":2,"zz":1}]'
    made = table((first, b'{"p":1}'), (second, b'{"p":2}'), (second, None))
    assert made.get("c", {"zz": 1, "aa": 2}) == {"p": 1}


@pytest.mark.parametrize(
    "key", [b"x", b'"c"', b'["c"]', b"[1,{}]", b'["c",[1]]', b'["c",{"a":[1]}]', None]
)
def test_keys_of_another_shape_are_skipped(key: bytes | None) -> None:
    made = table()
    made.apply(0, 0, key, b'{"p":1}')
    assert made.offsets("c") == []


def test_offset_values_must_be_primitives_not_arrays_or_maps() -> None:
    check_primitives({"a": None, "b": "x", "c": 1, "d": 1.5, "e": False})
    with pytest.raises(DataError, match="but field z contains ARRAY"):
        check_primitives({"position": 3, "z": [1]})
    with pytest.raises(DataError, match="but field z contains MAP"):
        check_primitives({"z": {}})


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"a": 1, "b": [True, None]}, b'{"a":1,"b":[true,null]}'),
        ('é/"\\\t\n\r\b\f\x1f\x7f', '"é/\\"\\\\\\t\\n\\r\\b\\f\\u001F\x7f"'.encode()),
        ("😀\uffff", b'"\\uD83D\\uDE00\xef\xbf\xbf"'),
        (1.0, b"1.0"),
        (0.1, b"0.1"),
        (1e7, b"1.0E7"),
        (12345678.9, b"1.23456789E7"),
        (-0.0001, b"-1.0E-4"),
        (0.0, b"0.0"),
        (2**63 - 1, b"9223372036854775807"),
    ],
)
def test_compact_json_has_the_bytes_of_javas_encoder(value: object, expected: bytes) -> None:
    assert compact_json.encode(value) == expected
    assert compact_json.decode(expected) == value
