"""Transformations that are declared as data: both forms follow from the declaration."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from connect_py.api.record import R, SinkRecord
from connect_py.api.schema import (
    INT32,
    OPTIONAL_BOOLEAN,
    STRING,
    Schema,
    Struct,
    Type,
    Value,
    struct,
)
from connect_py.testing import check_batch_form, sink_record
from transforms.field_changes import Conversion, CopiedField, FieldChanges, InsertedField
from transforms.field_transformation import FieldTransformation
from transforms.side import for_both


class Negate(Conversion):
    def schema(self, schema: Schema) -> Schema:
        return schema

    def value(self, schema: Schema | None, value: Value) -> Value:
        return None if value is None else not value

    def array(self, schema: Schema, result: Schema, data: pa.Array) -> pa.Array | None:
        return pc.invert(data) if schema.type is Type.BOOLEAN else None


class NegateActive(FieldTransformation[R]):
    purpose = "negating a field and adding the region"

    def configure(self, configs: Mapping[str, str]) -> None:
        region = InsertedField.constant("region", configs["region"])
        self.declare(FieldChanges(conversions={"active": Negate()}, inserted=[region]))


NegateActiveKey, NegateActiveValue = for_both(NegateActive)
ROW = struct(("id", INT32), ("active", OPTIONAL_BOOLEAN), name="row")


def transformation() -> NegateActive[SinkRecord]:
    instance = NegateActiveValue()
    instance.configure({"region": "eu"})
    return instance


def test_both_forms_of_a_declared_transformation_agree_on_structs_and_maps() -> None:
    values: list[list[Value]] = [
        [1, True],
        [2, None],
        [3, False],
        [None, True],
    ]  # the last lacks a required value
    structs = [
        sink_record(value=Struct(ROW, value), value_schema=ROW, offset=offset)
        for offset, value in enumerate(values)
    ]
    maps = [
        sink_record(value=value, offset=offset)
        for offset, value in enumerate([{"active": True}, {"id": 2}, None])
    ]
    assert check_batch_form(transformation(), structs) == len(structs)
    assert check_batch_form(transformation(), maps) == len(maps)


def test_result_of_a_declared_transformation_has_converted_and_inserted_fields() -> None:
    record = sink_record(value=Struct(ROW, [1, True]), value_schema=ROW)
    result = transformation().apply(record)
    schema = struct(("id", INT32), ("active", OPTIONAL_BOOLEAN), ("region", STRING), name="row")
    assert result is not None
    assert (result.value_schema, result.value) == (schema, Struct(schema, [1, False, "eu"]))
    in_map = transformation().apply(sink_record(value={"id": 2}))
    assert in_map is not None
    assert in_map.value == {"id": 2, "active": None, "region": "eu"}


def test_unsupported_combinations_of_changes_are_refused() -> None:
    with pytest.raises(ValueError, match="conversions cannot be combined"):
        FieldChanges(conversions={"a": Negate()}, copied=[CopiedField("b", "a")])
    with pytest.raises(ValueError, match="whole cannot be combined"):
        FieldChanges(whole=Negate(), headers=[("h", "a")])
