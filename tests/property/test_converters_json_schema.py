"""JsonSchemaConverter: what each kind of schema becomes, and columns equal rows, on damaged
messages too."""

from __future__ import annotations

import json
import struct as binary
from collections import Counter
from collections.abc import Iterator
from decimal import Decimal
from itertools import count
from typing import Any

import pytest
from fixtures.both_forms import PLANS, Plan, agree, both_forms, framed_parts, poll_of
from fixtures.converter_rows import by_columns, by_reference, same
from fixtures.native_decoder import BOTH, reading_by, with_and_without
from fixtures.schema_registry_stub import Stub, schema_registry
from fixtures.schema_registry_stub import impatient as unknown_is_bad
from fixtures.seeded_rows import SeededRows
from hypothesis import given
from hypothesis import strategies as st
from json_strategies import PASSED_OVER

from connect_py.api.errors import DataError, NotColumnar
from connect_py.api.schema import (
    DATE,
    DECIMAL,
    FLOAT64,
    INT16,
    INT64,
    NULL,
    OPTIONAL_STRING,
    STRING,
    Schema,
    Type,
    array,
    map_of,
)
from connect_py.converters.json_schema.json_schema_converter import JsonSchemaConverter
from connect_py.converters.json_schema.json_schema_type import json_schema_type
from connect_py.converters.registry.registry_converter import RegistryConverter

DECIMAL_TYPE = {
    "type": "number",
    "title": DECIMAL,
    "connect.type": "bytes",
    "connect.parameters": {"scale": "2"},
}
ORDER = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "type": "object",
    "title": "Order",
    "properties": {
        "id": {"type": "integer"},
        "count": {"type": "integer", "connect.type": "int32"},
        "note": {"oneOf": [{"type": "null"}, {"type": "string"}]},
        "price": DECIMAL_TYPE,
        "day": {"type": "integer", "title": DATE, "connect.type": "int32"},
        "raw": {"type": ["null", "string"], "connect.type": "bytes"},
        "weight": {"type": "number"},
        "paid": {"type": "boolean", "default": True},
        "state": {"enum": ["NEW", "SENT"]},
        "lines": {"type": "array", "items": {"$ref": "#/definitions/line"}},
        "stock": {
            "type": "object",
            "connect.type": "map",
            "additionalProperties": {"type": "integer"},
        },
    },
    "required": ["id"],
    "definitions": {
        "line": {
            "type": "object",
            "properties": {"sku": {"type": "string"}, "pieces": {"type": ["integer", "null"]}},
            "required": ["sku"],
        }
    },
}


@pytest.fixture(scope="module")
def registry() -> Iterator[Stub]:
    with schema_registry({1: {"schema": json.dumps(ORDER), "schemaType": "JSON"}}) as stub:
        yield stub


def converter(registry: Stub, **configs: str) -> JsonSchemaConverter:
    made = JsonSchemaConverter()
    made.configure({"schema.registry.url": registry.url, **configs}, is_key=False)
    return made


_ids = count(100)


def read(registry: Stub, schema: Any, value: Any, **configs: str) -> Any:
    """Convert one value under a schema."""
    schema_id = next(_ids)
    registry.schemas[schema_id] = {"schema": json.dumps(schema), "schemaType": "JSON"}
    made = converter(registry, **configs)
    try:
        return made.to_connect("t", framed(schema_id, value))
    finally:
        made.close()


def framed(schema_id: int, value: Any) -> bytes:
    return binary.pack(">bI", 0, schema_id) + json.dumps(value).encode()


def mapped(schema: Any) -> Schema:
    return json_schema_type(json.dumps(schema)).schema


def an_object(**properties: Any) -> Any:
    return {"type": "object", "properties": properties}


def test_null_messages_and_null_payloads_are_tombstones(registry: Stub) -> None:
    made = converter(registry)
    assert made.to_connect("t", None) == NULL
    assert made.to_connect("t", framed(1, None)) == NULL
    made.close()


@pytest.mark.parametrize(
    ("tree", "schema"),
    [
        ({"type": "integer"}, INT64),
        ({"type": "number"}, FLOAT64),
        ({"type": "integer", "connect.type": "int16"}, INT16),
        ({"type": ["null", "string"]}, OPTIONAL_STRING),
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, OPTIONAL_STRING),
        ({"oneOf": [{"type": "string"}]}, STRING),
        ({"type": "string", "format": "date-time"}, STRING),
        ({"type": "array", "items": {"type": "integer"}}, array(INT64)),
        ({"type": "object", "additionalProperties": {"type": "string"}}, map_of(STRING, STRING)),
        ({"allOf": [{"type": "string"}, {"description": "d"}]}, Schema(Type.STRING, doc="d")),
        (DECIMAL_TYPE, Schema(Type.BYTES, name=DECIMAL, version=1, parameters={"scale": "2"})),
    ],
)
def test_json_schema_types_map_to_connect_types(tree: Any, schema: Schema) -> None:
    assert mapped(tree) == schema


def test_enum_becomes_string_with_its_values_as_parameters() -> None:
    enum = "io.confluent.connect.json.Enum"
    assert mapped({"enum": ["A", "B"]}).parameters == {enum: "", f"{enum}.A": "A", f"{enum}.B": "B"}


def test_fields_stand_in_the_order_of_their_index() -> None:
    schema = mapped(
        an_object(
            b={"type": "string", "connect.index": 1}, a={"type": "string", "connect.index": 0}
        )
    )
    assert [f.name for f in schema.fields] == ["a", "b"]


def test_members_that_are_not_required_are_required_fields_unless_told(registry: Stub) -> None:
    schema, value = read(registry, an_object(a={"type": "string"}), {})
    assert (schema["a"].optional, value["a"]) == (False, None)
    told = read(
        registry, an_object(a={"type": "string"}), {}, **{"use.optional.for.nonrequired": "true"}
    )
    assert told.schema["a"].optional


def test_missing_members_of_nested_structs_are_errors(registry: Stub) -> None:
    with pytest.raises(DataError) as caught:
        read(registry, an_object(inside=an_object(a={"type": "string"})), {"inside": {}})
    assert "Invalid null value for required STRING field" in str(caught.value.__cause__)


def test_missing_member_takes_the_default_of_its_schema(registry: Stub) -> None:
    assert read(registry, an_object(a={"type": "integer", "default": 7}), {}).value["a"] == 7


def test_members_of_unions_are_chosen_by_validity(registry: Stub) -> None:
    union = {"oneOf": [{"type": "integer"}, {"type": "null"}, an_object(x={"type": "string"})]}
    schema, value = read(registry, an_object(u=union), {"u": {"x": "y"}})
    assert schema["u"].name == "io.confluent.connect.json.OneOf"
    assert [f.name for f in schema["u"].fields] == [
        f"io.confluent.connect.json.OneOf.field.{n}" for n in (0, 1)
    ]
    assert value["u"].values[1]["x"] == "y"
    assert read(registry, an_object(u=union), {"u": 5}).value["u"].values == [5, None]
    with pytest.raises(DataError) as caught:
        read(registry, an_object(u=union), {"u": "text"})
    assert "Did not find matching oneof field" in str(caught.value.__cause__)


def test_generalized_union_fields_have_numbered_connect_union_names(registry: Stub) -> None:
    union = {"oneOf": [{"type": "integer"}, {"type": "string"}]}
    schema, _ = read(
        registry, an_object(u=union), {"u": 1}, **{"generalized.sum.type.support": "true"}
    )
    assert [f.name for f in schema["u"].fields] == [
        "connect_union_field_0",
        "connect_union_field_1",
    ]


def test_maps_with_other_keys_come_as_entries(registry: Stub) -> None:
    entry = an_object(key={"type": "integer"}, value={"type": "string"})
    made = read(
        registry,
        an_object(m={"type": "array", "connect.type": "map", "items": entry}),
        {"m": [{"key": 1, "value": "a"}]},
    )
    assert made.schema["m"] == map_of(INT64, STRING)
    assert made.value["m"] == {1: "a"}


def test_values_of_any_type_are_their_json(registry: Stub) -> None:
    made = read(registry, an_object(a={}, b=True), {"a": {"x": [1]}, "b": "text"})
    assert (made.value["a"], made.value["b"]) == ('{"x":[1]}', "text")


def test_decimals_are_read_as_text_and_as_numbers(registry: Stub) -> None:
    assert read(registry, an_object(d=DECIMAL_TYPE), {"d": "MDk="}).value["d"] == Decimal("123.45")
    assert read(registry, an_object(d=DECIMAL_TYPE), {"d": 1.5}).value["d"] == Decimal("1.5")


def test_schema_references_are_resolved_from_the_registry(registry: Stub) -> None:
    schema_id = next(_ids)
    registry.schemas[90] = {
        "schema": json.dumps({"type": "object", "properties": {"city": {"type": "string"}}}),
        "schemaType": "JSON",
        "subjects": [{"subject": "address", "version": 1}],
    }
    registry.schemas[schema_id] = {
        "schema": json.dumps(an_object(at={"$ref": "address.json"})),
        "schemaType": "JSON",
        "references": [{"name": "address.json", "subject": "address", "version": 1}],
    }
    made = converter(registry)
    assert (
        made.to_connect("t", framed(schema_id, {"at": {"city": "Paris"}})).value["at"]["city"]
        == "Paris"
    )
    made.close()


def test_invalid_messages_are_refused_only_when_asked(registry: Stub) -> None:
    schema = {**an_object(a={"type": "integer", "minimum": 5}), "required": ["a"]}
    assert read(registry, schema, {"a": 1}).value["a"] == 1
    with pytest.raises(DataError) as caught:
        read(registry, schema, {"a": 1}, **{"json.fail.invalid.schema": "true"})
    assert "less than the minimum" in str(caught.value.__cause__)


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        ({"type": "null"}, "Standalone null schemas"),
        ({"type": "integer", "connect.type": "int7"}, "Unsupported connect.type int7"),
        ({"$ref": "#/definitions/nothing"}, "Not a JSON Schema"),
        ({"type": "object", "properties": {"a": {"$ref": "#"}}}, "is recursive"),
        ([], "Not a JSON Schema"),
    ],
)
def test_schemas_without_a_connect_form_are_data_errors(
    registry: Stub, schema: Any, text: str
) -> None:
    with pytest.raises(
        DataError, match="Failed to deserialize data for topic t to JSON Schema: "
    ) as caught:
        read(registry, schema, {})
    assert text in str(caught.value.__cause__)


def test_members_without_schema_go_into_a_map_when_configured(registry: Stub) -> None:
    line = {**an_object(sku={"type": "string"}), "additionalProperties": {"type": "integer"}}
    closed = {**an_object(a={"type": "string"}), "additionalProperties": False}
    tree = an_object(id={"type": "integer"}, line=line, closed=closed)
    value = {
        "id": 1,
        "line": {"sku": "s", "n": 2},
        "closed": {"a": "x", "b": 1},
        "more": {"x": [1.5]},
        "text": "t",
    }
    schema, made = read(registry, tree, value, **{"preserve.additional.properties": "true"})
    extras = "__connect_additional_properties__"
    assert made.get(extras) == {"more": '{"x":[1.5]}', "text": "t"}
    assert made.get("line").get(extras) == {"n": 2}
    assert [f.name for f in schema["closed"].fields] == ["a"]
    again = read(
        registry,
        tree,
        {"id": 1, "line": {"sku": "s"}, "closed": {"a": "x"}},
        **{"preserve.additional.properties": "true"},
    )
    assert (again.value.get(extras), again.value.get("line").get(extras)) == (None, None)
    assert schema[extras].value_schema == Schema(
        Type.STRING, name="io.debezium.data.Json", optional=True
    )
    assert extras not in [f.name for f in read(registry, tree, value).schema.fields]


@with_and_without
@pytest.mark.parametrize("member", PASSED_OVER, ids=range(len(PASSED_OVER)))
def test_what_nobody_asked_for_is_refused_as_by_the_reference(
    registry: Stub, decoder: str, member: bytes
) -> None:
    registry.schemas[2] = {
        "schema": json.dumps(an_object(a={"type": "integer"}, b={"type": "integer"})),
        "schemaType": "JSON",
    }
    data = [
        binary.pack(">bI", 0, 2) + body
        for body in (b'{"a":1}', b'{"a":2,' + member + b"}", b'{"a":3,"b":4}')
    ]
    with reading_by(decoder):
        made = converter(registry)
        try:
            try:
                columns = by_columns(made, data)
            except NotColumnar:
                return
            assert same(columns, by_reference(made, data))
        finally:
            made.close()


_texts = st.text(st.characters(codec="utf-8"), max_size=5)
_lines = st.fixed_dictionaries({"sku": _texts}, optional={"pieces": st.none() | st.integers(-9, 9)})
_wrong = st.sampled_from([None, 5, "x", True, [], {}, 1.5])
_orders = st.builds(
    lambda good, bad: {**good, **bad},
    st.fixed_dictionaries(
        {"id": st.integers(-(2**63), 2**63 - 1)},
        optional={
            "count": st.integers(-(2**31), 2**31 - 1),
            "note": st.none() | _texts,
            "price": st.sampled_from(["MDk=", "AA==", 1, 2.25, 10.125]),
            "day": st.integers(-10, 30_000),
            "raw": st.none() | st.sampled_from(["", "AAEC", "/w=="]),
            "weight": st.floats(allow_nan=False),
            "paid": st.booleans(),
            "state": st.sampled_from(["NEW", "SENT"]),
            "lines": st.lists(_lines, max_size=3),
            "stock": st.dictionaries(_texts, st.integers(-9, 9), max_size=3),
            "unknown": _wrong,
        },
    ),
    st.one_of(
        *[st.just({})] * 6,
        st.dictionaries(st.sampled_from(list(ORDER["properties"])), _wrong, max_size=1),
    ),  # type: ignore[call-overload] # of a JSON tree
)


# of one test: what reads without the native decoder must not do so in others
@pytest.fixture(params=BOTH)
def impatient(registry: Stub, request: pytest.FixtureRequest) -> Iterator[RegistryConverter]:
    with reading_by(request.param):
        yield from unknown_is_bad(converter(registry), registry)


POOL: list[SeededRows] = [SeededRows(seed, plain=False) for seed in range(80)]
columnar: Counter[bool] = Counter()


@both_forms(JsonSchemaConverter)
@given(
    PLANS,
    st.lists(_orders, min_size=1, max_size=3),
    st.none() | st.sampled_from(POOL),
    st.integers(0, 2**32),
    st.binary(max_size=12),
)
def test_json_schema_columns_equal_rows_on_damaged_messages_too(
    impatient: RegistryConverter,
    plan: Plan,
    orders: list[Any],
    rows: SeededRows | None,
    seed: int,
    noise: bytes,
) -> None:
    good = [framed(1, each) for each in orders]
    if rows is not None:
        rows.reseed(seed)
        written = [impatient.from_connect("t", rows.schema, rows.value()) for _ in orders]
        good = [message for message in written if message is not None]
    columnar[agree(impatient, poll_of(plan, good, [framed(1, None), noise], framed_parts))] += 1


def test_most_polls_of_json_schema_were_columns() -> None:
    assert columnar[True] >= columnar.total() / 4


def test_plain_messages_of_one_schema_are_one_run_of_columns(registry: Stub) -> None:
    made = converter(registry)
    (run,) = made.to_batch(
        "t", [*(framed(1, {"id": n, "lines": [{"sku": "s"}]}) for n in range(50)), None]
    )
    assert (run.start, run.stop, not run.failures) == (0, 51, True)
    assert run.column.data.field("id").to_pylist()[:50] == list(range(50))
    made.close()
