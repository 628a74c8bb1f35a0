"""Converters of strings, bytes, and primitives: both forms return the same rows."""

from __future__ import annotations

import pytest
from fixtures.both_forms import Message, agree, both_forms, polls
from hypothesis import given
from hypothesis import strategies as st

from connect_py.api.converter import Converter
from connect_py.converters.simple_converters import (
    BooleanConverter,
    ByteArrayConverter,
    DoubleConverter,
    FloatConverter,
    IntegerConverter,
    LongConverter,
    ShortConverter,
    StringConverter,
)

CONVERTERS: tuple[type[Converter], ...] = (
    ShortConverter,
    IntegerConverter,
    LongConverter,
    FloatConverter,
    DoubleConverter,
    BooleanConverter,
    ByteArrayConverter,
    StringConverter,
)
CORNERS = [
    b"\x00",
    b"\x01",
    b"\x02",
    b"\x7f\xc0\x00\x00",
    b"\xff\xf0" + b"\0" * 6,
    b"\x80" + b"\0" * 7,
    b"\xff" * 8,
]
NUMBERS = st.sampled_from([1, 2, 4, 8]).flatmap(
    lambda size: st.binary(min_size=size, max_size=size)
)
TEXTS = st.text(max_size=4).map(lambda text: text.encode("utf-8", "surrogatepass"))


def configured(kind: type[Converter], **configs: str) -> Converter:
    made = kind()
    made.configure({name.replace("_", "."): value for name, value in configs.items()}, is_key=False)
    return made


MADE = [*map(configured, CONVERTERS), configured(StringConverter, converter_encoding="ISO-8859-1")]


@both_forms(*CONVERTERS)
@given(polls(NUMBERS | st.sampled_from(CORNERS) | TEXTS))
def test_columns_of_simple_values_give_the_rows_of_the_reference(poll: list[Message]) -> None:
    for converter in MADE:
        assert agree(converter, poll)


@pytest.mark.parametrize("size", [2, 4, 8])
def test_numbers_of_the_right_size_are_never_failures(size: int) -> None:
    data: list[bytes | None] = [bytes([n] * size) for n in range(50)]
    (made,) = [
        c
        for c in MADE
        if type(c) is {2: ShortConverter, 4: IntegerConverter, 8: LongConverter}[size]
    ]
    (run,) = made.to_batch("t", data)
    assert not run.failures
    assert run.column.data.null_count == 0
