"""JsonConverter without schemas: columns equal rows."""

from __future__ import annotations

import json
from typing import Any

import pytest
from fixtures.converter_rows import by_columns, by_reference, recorded, same
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from json_strategies import ODD_TEXTS, objects

from connect_py.api.errors import NotColumnar
from connect_py.api.schema import NULL
from connect_py.converters.json_converter import JsonConverter


def converter(**configs: str) -> JsonConverter:
    made = JsonConverter()
    made.configure({"schemas.enable": "false", **configs}, is_key=False)
    return made


def write(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode()


messages = objects().flatmap(
    lambda shape: st.lists(st.none() | shape.map(write) | shape.map(write) | ODD_TEXTS, min_size=1, max_size=12)
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
