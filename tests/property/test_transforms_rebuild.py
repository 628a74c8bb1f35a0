"""Checks of a complete row compared with checks of one value after another."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from example_counts import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from connect_py.api.errors import DataError
from connect_py.api.schema import Schema, Struct, Type, array, decimal, struct
from transforms.rebuild import check_required, rules_of, values_of

INSIDE = struct(("n", Schema(Type.INT8)))
members = st.one_of(
    st.builds(
        Schema,
        st.sampled_from([t for t in Type if t not in (Type.ARRAY, Type.MAP, Type.STRUCT)]),
        optional=st.booleans(),
    ),
    st.sampled_from(
        [
            decimal(2),
            INSIDE,
            array(Schema(Type.INT16)),
            Schema(Type.INT32, optional=True, default=5),
        ]
    ),
)
values = st.one_of(
    st.none(),
    st.sampled_from(
        [
            0,
            1,
            127,
            128,
            -129,
            1 << 31,
            -(1 << 31),
            1 << 63,
            -(1 << 63),
            -(1 << 63) - 1,
            True,
            1.5,
            "a",
        ]
    ),
    st.sampled_from(
        [b"b", [1], [1 << 20], Decimal("1.00"), Struct(INSIDE, [1]), Struct(INSIDE, [300]), {}]
    ),
)
fields = st.lists(
    st.tuples(members, st.lists(values, min_size=4, max_size=4)), min_size=1, max_size=4
)


def failure(work: Any, *arguments: Any) -> str | None:
    try:
        work(*arguments)
    except DataError as error:
        return str(error)
    return None


def put_one_by_one(schema: Schema, row: list[Any]) -> None:
    made = Struct(schema)
    for field, value in zip(schema.fields, row, strict=True):
        made.put(field.name, value)


def refuse_required_nulls(schema: Schema, row: list[Any]) -> None:
    for field, value in zip(schema.fields, row, strict=True):
        if value is None:
            Struct(schema).put(field.name, None)


@settings(deadline=None, max_examples=examples(1000))
@given(fields)
def test_row_check_fails_exactly_as_setting_values_one_by_one(
    made: list[tuple[Schema, list[Any]]],
) -> None:
    schema = struct(*((f"f{index}", member) for index, (member, _) in enumerate(made)))
    # rows of one schema: the second knows the first
    for row in zip(*(column for _, column in made), strict=True):
        assert failure(rules_of(schema).check, list(row)) == failure(
            put_one_by_one, schema, list(row)
        )
        assert failure(check_required, schema, list(row)) == failure(
            refuse_required_nulls, schema, list(row)
        )
        kept = values_of(Struct(schema, row), replace_null_with_default=True)
        assert kept == [
            f.schema.default if v is None else v for f, v in zip(schema.fields, row, strict=True)
        ]
        assert values_of(Struct(schema, row), replace_null_with_default=False) == list(row)
