"""Schemas and structs: equality, invalid values, and error messages."""

from __future__ import annotations

import pickle
from decimal import Decimal

import pytest

from connect_py.api import schema as s
from connect_py.api.errors import DataError, SchemaBuilderError
from connect_py.api.schema import Schema, Struct, Type

POINT = s.struct(
    ("x", s.INT32), ("y", Schema(Type.INT32, optional=True, default=7)), name="point", version=2
)


def test_schema_equality_covers_every_attribute_of_the_schema() -> None:
    assert POINT.replace() == POINT
    for change in (
        {"optional": True},
        {"name": "other"},
        {"version": 3},
        {"doc": "a point"},
        {"parameters": {"a": "b"}},
        {"fields": [("x", s.INT32)]},
    ):
        assert POINT.replace(**change) != POINT


def test_a_default_that_is_no_number_equals_itself() -> None:
    def schema() -> Schema:
        return Schema(Type.FLOAT64, default=float("nan"))

    assert schema() == schema()
    assert hash(schema()) == hash(schema())


def test_a_schema_survives_pickling_and_cannot_be_changed() -> None:
    assert pickle.loads(pickle.dumps(POINT)) == POINT
    with pytest.raises(AttributeError):
        POINT.name = "other"


def test_two_fields_of_one_name_are_refused() -> None:
    with pytest.raises(
        SchemaBuilderError, match="Cannot create field because of field name duplication x"
    ):
        s.struct(("x", s.INT32), ("x", s.STRING))


def test_a_default_must_fit_its_type() -> None:
    with pytest.raises(SchemaBuilderError, match="Invalid default value"):
        Schema(Type.INT8, default=300)


def test_get_reads_defaults_and_get_without_default_does_not() -> None:
    point = Struct.of(POINT, x=1)
    assert (point.get("y"), point.get_without_default("y"), point["x"]) == (7, None, 1)
    with pytest.raises(DataError, match="z is not a valid field name"):
        point.get("z")


@pytest.mark.parametrize(
    ("schema", "value", "text"),
    [
        (s.INT32, None, 'Invalid value: null used for required field: "f", schema type: INT32'),
        (
            s.INT8,
            128,
            'Invalid Java object for schema with type INT8: class java.lang.Long for field: "f"',
        ),
        (
            s.INT32,
            True,
            "Invalid Java object for schema with type INT32: class java.lang.Boolean for field: "
            '"f"',
        ),
        (
            s.decimal(2),
            1,
            f'Invalid Java object for schema "{s.DECIMAL}" with type BYTES: class java.lang.Long',
        ),
        (s.array(s.STRING), ["a", None], "Invalid value: null used for required field"),
        (
            s.map_of(s.STRING, s.INT32),
            {"a": "b"},
            "Invalid Java object for schema with type INT32: class java.lang.String",
        ),
    ],
)
def test_values_that_do_not_fit_are_refused_in_javas_words(
    schema: Schema, value: object, text: str
) -> None:
    with pytest.raises(DataError) as refused:
        s.validate_value(schema, value, "f")
    assert str(refused.value).startswith(text)


def test_logical_types_carry_their_python_forms() -> None:
    row = s.struct(("d", s.decimal(2)), ("t", s.timestamp(optional=True)))
    made = Struct.of(row, d=Decimal("1.25"), t=-62_135_596_800_001)
    made.validate()
    assert s.decimal_scale(row["d"]) == 2
