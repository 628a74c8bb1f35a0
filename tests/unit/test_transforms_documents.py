"""Transformations of MongoDB's change events."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest
from transforms_cases import Cases, record
from transforms_documents import ENVELOPE, KEY, OBJECT_ID, SOURCE, TOPIC, event, tombstone

from connect_py.api.batch import Batch
from connect_py.api.errors import ConnectError, DataError
from connect_py.api.record import Header, Headers, SinkRecord
from connect_py.api.schema import (
    OPTIONAL_BOOLEAN,
    OPTIONAL_BYTES,
    OPTIONAL_FLOAT64,
    OPTIONAL_INT32,
    OPTIONAL_INT64,
    OPTIONAL_STRING,
    STRING,
    Schema,
    Struct,
    array,
    struct,
    timestamp,
)
from connect_py.error_handling.failed_record import stack_trace
from connect_py.java.errors import IllegalArgumentError, NullPointerError
from transforms.mongodb.documents import REGULAR_EXPRESSION
from transforms.mongodb.extended_json import canonical_text, parse_value

UNWRAP = "io.debezium.connector.mongodb.transforms.ExtractNewDocumentState"
ROUTER = "io.debezium.connector.mongodb.transforms.outbox.MongoEventRouter"
STRUCTS = "org.apache.iceberg.connect.transforms.MongoDebeziumTransform"
CASES = Cases("", columnar=False)
MODE = "delete__tombstone__handling__mode"
IDENTITY = f'"_id": {{"$oid": "{OBJECT_ID}"}}'


def unwrapped(given: SinkRecord, **options: str) -> SinkRecord:
    return CASES.apply(UNWRAP, given, **options)


def row(given: SinkRecord, **options: str) -> dict[str, Any]:
    """The members of the document by name."""
    value = unwrapped(given, **options).value
    return {field.name: member for field, member in value}


def members(text: str, **options: str) -> tuple[Schema, Any]:
    """Schema and value of the member `a` of a document."""
    made = unwrapped(event("c", f'{{"a": {text}}}'), **options)
    assert made.value_schema is not None
    return made.value_schema["a"], made.value["a"]


@pytest.mark.parametrize(
    ("text", "schema", "expected"),
    [
        ('"x"', OPTIONAL_STRING, "x"),
        ("5", OPTIONAL_INT32, 5),
        ("5000000000", OPTIONAL_INT64, 5_000_000_000),
        ('{"$numberInt": "-7"}', OPTIONAL_INT32, -7),
        ('{"$numberLong": "7"}', OPTIONAL_INT64, 7),
        ("1.0", OPTIONAL_FLOAT64, 1.0),
        ('{"$numberDouble": "-Infinity"}', OPTIONAL_FLOAT64, float("-inf")),
        ('{"$numberDecimal": "1e3"}', OPTIONAL_STRING, "1E+3"),
        ("true", OPTIONAL_BOOLEAN, True),
        ("null", OPTIONAL_STRING, None),
        (f'{{"$oid": "{OBJECT_ID.upper()}"}}', OPTIONAL_STRING, OBJECT_ID),
        ('{"$date": 1700000000123}', timestamp(optional=True), 1_700_000_000_123),
        ('{"$date": {"$numberLong": "-1"}}', timestamp(optional=True), -1),
        ('{"$date": "2024-01-02T03:04:05.678+02:00"}', timestamp(optional=True), 1_704_157_445_678),
        ('{"$date": "-0043-03-15T00:00:00Z"}', timestamp(optional=True), -63_517_824_000_000),
        ('{"$timestamp": {"t": 4294967295, "i": 1}}', timestamp(optional=True), 4_294_967_295_000),
        ('{"$binary": "AQI=", "$type": "00"}', OPTIONAL_BYTES, b"\1\2"),
        ('{"$binary": {"base64": "AQI=", "subType": "04"}}', OPTIONAL_BYTES, b"\1\2"),
        ('{"$uuid": "01020304-0506-0708-090a-0b0c0d0e0f10"}', OPTIONAL_BYTES, bytes(range(1, 17))),
        ('{"$code": "f()"}', OPTIONAL_STRING, "f()"),
        (
            '{"$regex": "a.*", "$options": "mi"}',
            REGULAR_EXPRESSION,
            Struct(REGULAR_EXPRESSION, ["a.*", "im"]),
        ),
        (
            '{"$regularExpression": {"pattern": "a"}}',
            REGULAR_EXPRESSION,
            Struct(REGULAR_EXPRESSION, ["a", ""]),
        ),
        ("[]", array(OPTIONAL_STRING, optional=True), []),
        ("[1, null]", array(OPTIONAL_INT32, optional=True), [1, None]),
        ("[[], [1]]", array(array(OPTIONAL_INT32, optional=True), optional=True), [[], [1]]),
    ],
)
def test_each_type_of_bson_has_a_type_of_connect(text: str, schema: Schema, expected: Any) -> None:
    assert members(text) == (schema, expected)


def test_documents_inside_are_structs_named_by_their_path() -> None:
    schema, value = members('{"b": {"c": 1}, "d": {"$regex": 5}}')
    inner = struct(("c", OPTIONAL_INT32), name=f"{TOPIC}.a.b", optional=True)
    query = struct(("$regex", OPTIONAL_INT32), name=f"{TOPIC}.a.d", optional=True)
    assert schema == struct(("b", inner), ("d", query), name=f"{TOPIC}.a", optional=True)
    assert value == Struct(schema, [Struct(inner, [1]), Struct(query, [5])])
    code, value = members('{"$code": "f()", "$scope": {"x": 1}}')
    assert [field.name for field in code.fields] == ["code", "scope"]
    assert (value["code"], value["scope"]["x"]) == ("f()", 1)


def test_documents_in_an_array_share_the_members_of_all() -> None:
    schema, value = members(
        '[{"x": 1, "in": {"p": 1}}, {"y": "s", "x": null, "in": {"q": 2}}, null]'
    )
    assert schema.value_schema is not None
    assert [field.name for field in schema.value_schema.fields] == ["x", "in", "y"]
    first, second, third = value
    assert (first["x"], first["in"]["p"], first["in"]["q"], first["y"]) == (1, 1, None, None)
    assert (second["x"], second["in"]["p"], second["in"]["q"], second["y"]) == (None, None, 2, "s")
    assert third is None


@pytest.mark.parametrize(
    "text",
    [
        '[{"x": 1}, {"x": {"$minKey": 1}}]',
        '[{"x": {"$symbol": "q"}}, {"x": 1}]',
        '[{"x": null}, {"x": {"$maxKey": 1}}]',
    ],
)
def test_unsupported_value_is_null_where_its_neighbours_have_a_type(text: str) -> None:
    made = unwrapped(event("c", f'{{"a": {text}}}'))
    assert {1, None} >= {inner["x"] for inner in made.value["a"]}
    assert len(Batch.of([made])[0]) == 1


def test_arrays_become_documents_with_numbers_for_names_if_asked() -> None:
    schema, value = members('[1, "x", [{"y": 2}]]', array__encoding="Document")
    assert [(field.name, field.schema.type.name) for field in schema.fields] == [
        ("_0", "INT32"),
        ("_1", "STRING"),
        ("_2", "STRUCT"),
    ]
    assert value["_2"]["_0"]["y"] == 2


@pytest.mark.parametrize(
    "text",
    ['[1, "x"]', "[1, 5000000000]", '[{"x": 1}, {"x": "s"}]', '[{"x": 1}, 2]', "[[1], [1.5]]"],
)
def test_arrays_with_elements_of_several_types_are_refused(text: str) -> None:
    message = CASES.failing(UNWRAP, event("c", f'{{"a": {text}}}'), DataError)
    assert "Array elements with different Bson types are not supported" in message


@pytest.mark.parametrize(
    "text",
    [
        '{"$symbol": "q"}',
        '{"$minKey": 1}',
        '{"$maxKey": 1}',
        '{"$undefined": true}',
        '{"$dbPointer": {"$ref": "c"}}',
    ],
)
def test_what_no_table_can_hold_is_left_out(text: str) -> None:
    assert row(event("c", f'{{"a": {text}, "b": 1}}')) == {"b": 1}
    CASES.failing(UNWRAP, event("c", f'{{"a": [{text}]}}'), DataError)


@pytest.mark.parametrize(
    "text",
    [
        "not json",
        "[1]",
        "null",
        "",
        '{"a": NumberLong(5)}',
        '{"a": {"$oid": "XX"}}',
        '{"a": {"$numberLong": 5}}',
        '{"a": {"$numberInt": "3000000000"}}',
        '{"a": 9223372036854775808}',
        '{"a": {"$binary": "?", "$type": "00"}}',
        '{"a": {"$date": "yesterday"}}',
        '{"a": {"$timestamp": {"t": 1}}}',
        '{"a": {"$numberDecimal": "1.2.3"}}',
        '{"a": {"$oid": "5f1b2c3d4e5f6a7b8c9d0e1f", "b": 1}}',
        '{"": 1}',
        '{"a":' * 3000 + "1" + "}" * 3000,
        '{"a": {"$binary": {"subType": "00"}}}',
        '{"a": {"$code": 1}}',
        '{"a": {"$numberDecimal": "' + "1" * 35 + '"}}',
    ],
)
def test_text_that_is_no_valid_document_fails_its_record(text: str) -> None:
    CASES.failing(UNWRAP, event("c", text), DataError)


@pytest.mark.parametrize(
    "text",
    [
        '{"a": {"$numberDouble": "s3cret"}}',
        '{"a": {"$numberInt": "s3cret"}}',
        '{"a": {"$oid": "s3cret"}}',
        '{"a": {"$numberDecimal": "s3cret"}}',
        '{"a": {"$date": "s3cret"}}',
        '{"a": {"$uuid": "s3cret"}}',
        '{"a": {"$binary": "s3cret", "$type": "00"}}',
        '{"a": "s3cret',
        "s3cret",
        '{"s3cret": \\s}',
    ],
)
def test_no_error_shows_what_a_document_holds(text: str) -> None:
    with pytest.raises(DataError, match="invalid extended JSON") as caught:
        parse_value(text)
    assert "s3cret" not in stack_trace(caught.value)


def test_the_key_has_the_type_of_the_id() -> None:
    document = f"{{{IDENTITY}}}"
    for text, schema, value in [
        ("1004", OPTIONAL_INT32, 1004),
        ('"1234"', OPTIONAL_STRING, "1234"),
        (f'{{"$oid": "{OBJECT_ID}"}}', OPTIONAL_STRING, OBJECT_ID),
        ('{"$numberLong": "5"}', OPTIONAL_INT64, 5),
    ]:
        made = unwrapped(event("c", document, key=text))
        assert (made.key_schema, made.key.values) == (struct(("id", schema)), [value])
    assert (
        CASES.failing(UNWRAP, event("c", document, key=None), NullPointerError)
        == "the event has no key"
    )
    other = struct(("_id", STRING), name="x.Key")
    given = event("c", document).replace(key_schema=other, key=Struct(other, ["1"]))
    assert CASES.failing(UNWRAP, given, IllegalArgumentError) == "Unknown field: id"


def test_update_without_the_document_gives_changes_and_the_id() -> None:
    given = event("u", changed='{"a": 5, "b.d": 7}', removed=["x"])
    assert row(given) == {"a": 5, "b.d": 7, "_id": OBJECT_ID}
    assert row(given, flatten__struct="true") == {"a": 5, "b_d": 7, "_id": OBJECT_ID}
    assert row(event("u", removed=["x"])) == {"_id": OBJECT_ID}
    assert row(event("u", f'{{{IDENTITY}, "a": 1}}', changed='{"a": 5}')) == {
        "_id": OBJECT_ID,
        "a": 1,
    }


def test_deletes_become_what_the_mode_says() -> None:
    bare, full = event("d"), event("d", before=f'{{{IDENTITY}, "a": 1}}')
    for mode in ("tombstone", "delete-to-tombstone"):
        made = unwrapped(full, **{MODE: mode})
        assert (made.value_schema, made.value, made.key["id"]) == (None, None, OBJECT_ID)
    assert CASES.outcome(UNWRAP, bare, **{MODE: "drop"}) is None
    assert row(full, **{MODE: "rewrite"}) == {"_id": OBJECT_ID, "a": 1, "__deleted": True}
    assert row(bare, **{MODE: "rewrite"}) == {"__deleted": True}
    with_id = {MODE: "rewrite", f"{MODE}__rewrite-with-id": "true"}
    assert row(bare, **with_id) == {"__deleted": True, "_id": OBJECT_ID}
    assert row(event("c", '{"a": 1}'), **with_id) == {"a": 1, "__deleted": False, "_id": OBJECT_ID}


def test_tombstones_are_dropped_unless_the_mode_keeps_them() -> None:
    assert CASES.outcome(UNWRAP, tombstone()) is None
    made = unwrapped(tombstone(), **{MODE: "rewrite-with-tombstone"}, add__headers="op")
    assert (made.value, made.key["id"], list(made.headers)) == (
        None,
        OBJECT_ID,
        [Header("__op", "d", STRING)],
    )


def test_truncations_and_updates_that_tell_nothing_are_dropped() -> None:
    assert CASES.outcome(UNWRAP, event("t", key=None)) is None
    assert CASES.outcome(UNWRAP, event("u")) is None
    assert CASES.outcome(UNWRAP, event("d", key=None)) is None


def test_nested_documents_are_flattened_with_the_configured_delimiter() -> None:
    text = f'{{{IDENTITY}, "a": {{"b": {{"c": 1}}, "d": [{{"e": 2}}]}}, "n": {{}}}}'
    assert list(row(event("c", text), flatten__struct="true")) == ["_id", "a_b_c", "a_d"]
    dotted = row(
        event("c", text),
        flatten__struct="true",
        flatten__struct__delimiter=".",
        array__encoding="document",
    )
    assert list(dotted) == ["_id", "a.b.c", "a.d._0.e"]


def test_members_of_the_event_are_added_to_rows_and_headers() -> None:
    given = event("c", f"{{{IDENTITY}}}", headers=Headers([Header("h", "x", STRING)]))
    made = unwrapped(
        given,
        add__fields="op,source.ord,collection,nosuch",
        add__headers="op:kind",
        **{MODE: "rewrite"},
    )
    assert [(f.name, v) for f, v in made.value] == [
        ("_id", OBJECT_ID),
        ("__deleted", False),
        ("__op", "c"),
        ("__source_ord", 1),
        ("__collection", "products"),
    ]
    assert list(made.headers) == [Header("h", "x", STRING), Header("__kind", "c", OPTIONAL_STRING)]


@pytest.mark.parametrize(
    ("mode", "names"),
    [
        ("none", ["1x", "é", "a b", "_", "A.b", "𝄞"]),
        ("avro", ["_1x", "_", "a_b"]),
        ("avro_unicode", ["_u0031x", "_u00e9", "a_u0020b", "_u005f", "A_u002eb", "_ud834_udd1e"]),
    ],
)
def test_field_names_are_adjusted_by_the_configured_mode(mode: str, names: list[str]) -> None:
    document = dict.fromkeys(["1x", "é", "a b", "_", "A.b", "𝄞"][: len(names)], 1)
    made = row(event("c", json.dumps(document)), field__name__adjustment__mode=mode)
    assert list(made) == names


def test_records_that_are_no_events_of_documents_pass() -> None:
    for given in (
        event("c", "{}").replace(key_schema=struct(("id", STRING), name="x.Other")),
        event("c", "{}").replace(key_schema=None, key={"id": "1"}),
        event("c", "{}").replace(value_schema=SOURCE, value=Struct(SOURCE, [1, "db", "c", 1])),
        event("c", "{}").replace(value_schema=None, value={"after": "{}"}),
    ):
        assert unwrapped(given) == given


def test_events_of_connectors_other_than_mongodb_are_refused() -> None:
    plain = struct(
        ("after", struct(("id", STRING), optional=True)), ("op", STRING), name="x.Envelope"
    )
    given = event("c", "{}").replace(
        value_schema=plain, value=Struct(plain, [Struct(plain["after"], ["1"]), "c"])
    )
    assert "not a MongoDB change event" in CASES.failing(UNWRAP, given, DataError)


def test_options_are_checked_and_those_without_effect_warned_of(
    caplog: pytest.LogCaptureFixture,
) -> None:
    for options in (
        {"array__encoding": "list"},
        {MODE: "keep"},
        {"field__name__adjustment__mode": "java"},
    ):
        with pytest.raises(ConnectError, match=r"Unable to validate config\."):
            unwrapped(tombstone(), **options)
    with caplog.at_level(logging.WARNING):
        unwrapped(event("c", f"{{{IDENTITY}}}"), route__by__field="a")
    assert "route.by.field has no effect on documents" in caplog.text


# ---------------------------------------------------------------- Iceberg


def documents(given: SinkRecord, **options: str) -> dict[str, dict[str, Any]]:
    """Return the documents of the event before and after the change."""
    value = CASES.apply(STRUCTS, given, **options).value
    return {
        n: {f.name: v for f, v in value[n]}
        for n in ("before", "after")
        if value.schema.field(n) is not None
    }


def test_texts_become_structs_in_the_event() -> None:
    made = CASES.apply(STRUCTS, event("c", f'{{{IDENTITY}, "a": 1}}'))
    schema = made.value_schema
    assert schema is not None
    assert [field.name for field in schema.fields] == [
        "after",
        "updateDescription",
        "source",
        "op",
        "ts_ms",
    ]
    assert (schema.name, schema.version) == (ENVELOPE.name, None)
    assert schema["after"] == struct(("_id", OPTIONAL_STRING), ("a", OPTIONAL_INT32), optional=True)
    assert (made.key["id"], made.value["op"], made.value["after"]["a"]) == (OBJECT_ID, "c", 1)


def test_updates_are_applied_to_the_document_before() -> None:
    before = f'{{{IDENTITY}, "a": 1, "b": 2}}'
    given = event("u", before=before, changed='{"a": 5, "c": 6}', removed=["b"])
    assert documents(given) == {
        "before": {"_id": OBJECT_ID, "a": 1, "b": 2},
        "after": {"_id": OBJECT_ID, "a": 5, "c": 6},
    }
    assert documents(event("u", changed='{"a": 5}')) == {"after": {"a": 5, "_id": OBJECT_ID}}
    assert documents(event("u", removed=["a"])) == {"after": {"_id": OBJECT_ID}}
    assert documents(event("d", before=before)) == {"before": {"_id": OBJECT_ID, "a": 1, "b": 2}}
    assert (
        documents(event("c", '{"a": [1, "x"]}'), array_handling_mode="document")["after"]["a"]["_1"]
        == "x"
    )


def test_delete_without_its_document_becomes_a_tombstone_of_its_key() -> None:
    made = CASES.apply(STRUCTS, event("d"))
    assert (made.value_schema, made.value, made.key["id"]) == (None, None, OBJECT_ID)
    CASES.failing(STRUCTS, event("u"), IllegalArgumentError)
    CASES.failing(STRUCTS, event("c", "{}", key=None), NullPointerError)


def test_other_records_become_null_and_tombstones_pass() -> None:
    assert CASES.apply(STRUCTS, tombstone()) == tombstone()
    made = CASES.apply(STRUCTS, record({"ts_ms": 1}, key=Struct(KEY, ["1"])))
    assert (made.key_schema, made.key, made.value_schema, made.value) == (None, None, None, None)


def test_the_collection_takes_the_place_of_the_table_afterwards() -> None:
    structs = CASES.apply(STRUCTS, event("u", f'{{{IDENTITY}, "a": 1}}'))
    made = CASES.apply("org.apache.iceberg.connect.transforms.DebeziumTransform", structs)
    cdc = {field.name: value for field, value in made.value["_cdc"] if field.name != "key"}
    assert cdc == {
        "op": "U",
        "ts": 99,
        "offset": 42,
        "source": "inventory.products",
        "target": "inventory.products",
    }
    plain = {"op": "c", "after": {"a": 1}, "source": {"db": "d", "collection": "c"}, "ts_ms": 5}
    made = CASES.apply(
        "org.apache.iceberg.connect.transforms.DebeziumTransform", record(plain, key=None)
    )
    assert made.value["_cdc"]["source"] == "d.c"


# ---------------------------------------------------------------- the outbox


def outbox(payload: str, code: str = "c") -> SinkRecord:
    return event(
        code,
        f'{{{IDENTITY}, "aggregateid": "a1", "aggregatetype": "Order", "payload": {payload}, "v": '
        f"3}}",
    )


def test_documents_of_an_outbox_become_events() -> None:
    made = CASES.apply(ROUTER, outbox('"text"'))
    assert (made.topic, made.key, made.value, made.timestamp) == (
        "outbox.event.Order",
        "a1",
        "text",
        99,
    )
    assert list(made.headers) == [Header("id", OBJECT_ID, OPTIONAL_STRING)]
    assert CASES.outcome(ROUTER, outbox('"text"', "d")) is None
    assert CASES.outcome(ROUTER, tombstone()) is None
    CASES.failing(ROUTER, event("c", "{}"), DataError)
    CASES.failing(ROUTER, event("c"), DataError)
    CASES.failing(ROUTER, event("c", '{"aggregatetype": "Order"}'), ConnectError)


def test_document_payload_becomes_extended_json_or_a_struct() -> None:
    given = outbox('{"a": 1, "b": [true, {}]}')
    text = '{\n  "a": {\n    "$numberInt": "1"\n  },\n  "b": [\n    true,\n    {}\n  ]\n}'
    assert CASES.apply(ROUTER, given).value == text
    placed = CASES.apply(
        ROUTER,
        outbox('{"a": 1}'),
        collection__expand__json__payload="true",
        collection__fields__additional__placement="v:envelope:version",
    )
    assert placed.value_schema is not None
    assert placed.value_schema.name == "io.debezium.data.Order.Json"
    assert (placed.value["payload"]["a"], placed.value["version"]) == (1, 3)


@pytest.mark.parametrize(
    "text",
    [
        '{"$oid": "5f1b2c3d4e5f6a7b8c9d0e1f"}',
        '{"$numberLong": "5"}',
        '{"$numberDouble": "1.0E300"}',
        '{"$minKey": 1}',
        '{"$numberDecimal": "1E+3"}',
        '{"$date": {"$numberLong": "-1"}}',
        '{"$timestamp": {"t": 5, "i": 6}}',
        '{"$binary": {"base64": "AQID", "subType": "04"}}',
        '{"$regularExpression": {"pattern": "a", "options": "i"}}',
        '{"$code": "f"}',
        '{"$code": "f", "$scope": {"a": null}}',
        '[{"$symbol": "s"}, "ü", false]',
    ],
)
def test_canonical_texts_are_read_as_they_were_written(text: str) -> None:
    assert json.loads(canonical_text(parse_value(text))) == json.loads(text)
    assert parse_value(canonical_text(parse_value(text))) == parse_value(text)
