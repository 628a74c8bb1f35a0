"""JsonConverter without schemas: columns equal rows."""

from __future__ import annotations

import json
from typing import Any

import pytest
from fixtures.converter_rows import by_columns, by_reference, recorded, same
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from connect_py.api.errors import NotColumnar
from connect_py.api.schema import NULL
from connect_py.converters.json_converter import JsonConverter


def converter(**configs: str) -> JsonConverter:
    made = JsonConverter()
    made.configure({"schemas.enable": "false", **configs}, is_key=False)
    return made


NAMES = st.sampled_from(["a", "b", "c", "before", "ü", "x y"]) | st.text(max_size=3)
TEXTS = st.text(max_size=5) | st.sampled_from(["\U0001f600", "\\", '"', "\n", "null"])
NUMBERS = st.integers(-(2**66), 2**66) | st.integers(-5, 5) | st.floats(allow_nan=False, allow_infinity=False)
MEMBERS = st.sampled_from([
    st.integers(-(2**63), 2**63 - 1), st.integers(-(2**66), 2**66), st.booleans(), TEXTS,
    st.floats(allow_nan=False, allow_infinity=False), st.none(), st.lists(TEXTS | st.none(), max_size=3),
    st.lists(st.integers(0, 9), max_size=3), NUMBERS,
])  # fmt: skip


def objects(depth: int = 2) -> st.SearchStrategy[st.SearchStrategy[dict[str, Any]]]:
    """Strategies of objects that share a shape; members may be missing or null."""
    member = MEMBERS if depth == 0 else MEMBERS | objects(depth - 1) | objects(depth - 1).map(
        lambda o: st.lists(o | st.none(), max_size=2)
    )  # fmt: skip
    return st.dictionaries(NAMES, member.map(lambda s: s | st.none()), max_size=4).flatmap(
        lambda shape: st.sets(st.sampled_from(sorted(shape) or [""])).map(
            lambda sometimes: st.fixed_dictionaries(
                {n: s for n, s in shape.items() if n not in sometimes},
                optional={n: s for n, s in shape.items() if n in sometimes},
            )
        )
    )


ODD = st.sampled_from([
    b"", b"  ", b"null", b"{", b"{}", b"[]", b"1", b"1.0", b'"x"', b'{"a":1} garbage', b'{"a":007}', b'{"a":1e400}',
    b'{"a":-0}', b'{"a":-0.0}', b'{"a":1,"a":"x"}', b'{"a":"x","a":1}', b'{"a":NaN}', b'{"a":"\\ud800"}', b'{"a":1,}',
    b"\xef\xbb\xbf{}", b'{"a":"\xff"}', b'{"a":"\x01"}', '{"a":1}'.encode("utf-16"), b'{"a\\u0062":1}', b"[[[1]]]",
    b'{"a":' + b"9" * 1001 + b"}", b'{"a":' + b"9" * 999 + b"}", b"[" * 1001 + b"]" * 1001, b'{"a":[1,"x"]}',
    b'{"a":[1,2.5]}', b'{"a":[{"b":1},{"c":1}]}', b'{"a":9223372036854775808}',
])  # fmt: skip


def write(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode()


messages = objects().flatmap(
    lambda shape: st.lists(st.none() | shape.map(write) | shape.map(write) | ODD, min_size=1, max_size=12)
)


@given(messages)
@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
def test_columns_of_schemaless_json_give_the_rows_of_the_reference(data: list[bytes | None]) -> None:
    made = converter()
    for part in (data, data[::-1]):  # the second call starts with what the first one learned
        expected = by_reference(made, part)
        try:
            rows = by_columns(made, part)
        except NotColumnar:
            continue
        assert all(map(same, rows, expected)), (rows, expected)


def test_columns_of_recorded_plain_json_give_the_rows_of_the_reference() -> None:
    for topic, data in recorded("json-plain").items():
        made = converter()
        rows = by_columns(made, data)
        expected = by_reference(made, data)
        assert all(map(same, rows, expected)), topic
        assert NULL in rows or None not in data


@pytest.mark.parametrize("tombstone_first", [True, False])
def test_a_tombstone_never_ends_a_run(tombstone_first: bool) -> None:
    data: list[bytes | None] = [b'{"a":1}', None, b'{"a":2}']
    runs = converter().to_batch("t", data[1:] if tombstone_first else data)
    assert len(runs) == 1


def test_a_number_that_is_no_integer_is_never_cut_to_one() -> None:
    data = [b'{"a":1}', b'{"a":2.5}']
    with pytest.raises(NotColumnar):
        converter().to_batch("t", data)


def test_one_bad_message_is_named_and_the_others_go_on() -> None:
    (run,) = converter().to_batch("t", [b'{"a":1}', None, b"{", b'{"a":2}'])
    assert list(run.failures) == [2]
    assert [row.value for row in run.column.rows()] == [{"a": 1}, None, None, {"a": 2}]
