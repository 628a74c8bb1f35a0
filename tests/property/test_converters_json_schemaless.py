"""JsonConverter without schemas: both forms return the same rows."""

from __future__ import annotations

import json
from collections import Counter
from random import Random
from typing import Any

import pytest
from fixtures.both_forms import Message, agree, both_forms, polls
from fixtures.converter_rows import by_columns, by_reference, recorded, same
from fixtures.native_decoder import reading_by, with_and_without
from fixtures.seeded_json import shape
from hypothesis import given
from hypothesis import strategies as st
from json_strategies import ODD_TEXTS

from connect_py.api.errors import NotColumnar
from connect_py.api.schema import NULL
from connect_py.converters.json.json_converter import JsonConverter


def converter(**configs: str) -> JsonConverter:
    made = JsonConverter()
    made.configure({"schemas.enable": "false", **configs}, is_key=False)
    return made


def write(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode()


SEEDS = st.integers(0, 2**32)


@st.composite
def object_polls(draw: st.DrawFn) -> list[Message]:
    made = shape(Random(draw(SEEDS)))
    return draw(polls(SEEDS.map(lambda seed: write(made(Random(seed)))), ODD_TEXTS))


columnar: Counter[bool] = Counter()


@with_and_without
@both_forms(JsonConverter)
@given(poll=object_polls())
def test_columns_of_schemaless_json_give_the_rows_of_the_reference(
    decoder: str, poll: list[Message]
) -> None:
    with reading_by(decoder):
        # the second call starts with the shape of the first call
        columnar[agree(converter(), poll, twice=True)] += 1


def test_most_schemaless_polls_were_converted_in_columns() -> None:
    assert columnar[True] >= columnar.total() / 4


def test_columns_of_recorded_schemaless_json_equal_the_reference_rows() -> None:
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


def test_fractional_number_is_never_cut_to_an_integer() -> None:
    data = [b'{"a":1}', b'{"a":2.5,"b":true}']
    with pytest.raises(NotColumnar):
        converter().to_batch("t", data)


def test_one_bad_message_is_named_and_the_others_go_on() -> None:
    (run,) = converter().to_batch("t", [b'{"a":1}', None, b"{", b'{"a":2}'])
    assert list(run.failures) == [2]
    assert [row.value for row in run.column.rows()] == [{"a": 1}, None, None, {"a": 2}]


@pytest.mark.parametrize("length", [2, 63, 64, 65, 300])
def test_change_of_a_kind_starts_a_run(length: int) -> None:
    kinds = [b'{"a":1}', b'{"a":"x","b":[1]}', b'{"a":null,"b":["y"]}', b'{"a":2.5,"b":true}']
    data: list[bytes | None] = [message for message in kinds for _ in range(length)]
    data[1] = None
    runs = converter().to_batch("t", data)
    assert [run.start for run in runs] == [0, length, 2 * length, 3 * length]
    rows = [row.value for run in runs for row in run.column.rows()]
    assert same(rows, [None if m is None else json.loads(m) for m in data])
