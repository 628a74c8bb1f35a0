"""Transformations of Debezium, Iceberg and Confluent that no recording covers."""

from __future__ import annotations

import gzip
from typing import Any

import pytest
from transforms_cases import NOW, Cases, record
from transforms_chain import configured

from connect_py.api.batch import Batch
from connect_py.api.errors import ConnectError, DataError
from connect_py.api.record import Header, Headers, SinkRecord
from connect_py.api.schema import (
    INT32,
    INT64,
    OPTIONAL_INT32,
    OPTIONAL_INT64,
    OPTIONAL_STRING,
    STRING,
    Schema,
    Struct,
    Type,
    array,
    decimal,
    map_of,
    struct,
)
from connect_py.java.errors import NullPointerError, UnsupportedOperationError
from transforms.expression import Expression, ExpressionError

DEBEZIUM = "io.debezium.transforms"
ICEBERG = "org.apache.iceberg.connect.transforms"
CONFLUENT = "io.confluent.connect.transforms"
OTHERS = Cases("", columnar=False)
apply, failing, refused = OTHERS.outcome, OTHERS.failing, OTHERS.refused
ROW = struct(("id", INT32), ("at", OPTIONAL_STRING), name="t.Value", optional=True)
ENVELOPE = struct(
    ("before", ROW),
    ("after", ROW),
    ("source", struct(("table", STRING))),
    ("op", STRING),
    ("ts_ms", INT64),
    name="t.Envelope",
)
MICRO = Schema(Type.INT64, name="io.debezium.time.MicroTimestamp")
OUTBOX = struct(
    ("id", STRING),
    ("aggregatetype", STRING),
    ("aggregateid", STRING),
    ("type", STRING),
    ("payload", OPTIONAL_STRING),
    ("shard", INT32),
    ("made", MICRO),
    name="outbox.Value",
    optional=True,
)
OUTBOX_ENVELOPE = struct(
    ("before", OUTBOX), ("after", OUTBOX), ("op", STRING), ("ts_ms", INT64), name="o.Envelope"
)


def value_of(name: str, value: Any, **options: str) -> Any:
    made = apply(name, record(value), **options)
    assert made is not None
    return made.value


def event(code: str, **rows: Any) -> Struct:
    before, after = (
        None if rows.get(n) is None else Struct(ROW, rows[n]) for n in ("before", "after")
    )
    return Struct(ENVELOPE, [before, after, Struct(ENVELOPE["source"], ["orders"]), code, 5])


# ---------------------------------------------------------------- Debezium


def test_changed_columns_are_told_by_java_s_equality() -> None:
    row = struct(
        ("a", Schema(Type.FLOAT64)), ("b", Schema(Type.FLOAT64)), ("c", array(INT32)), optional=True
    )
    envelope = struct(("before", row), ("after", row), ("op", STRING), name="t.Envelope")
    nan = float("nan")
    given = Struct(
        envelope, [Struct(row, [nan, 0.0, [1]]), Struct(row, [float("nan"), -0.0, [1]]), "u"]
    )
    transformation = configured(
        {
            "type": f"{DEBEZIUM}.ExtractChangedRecordState",
            "header.changed.name": "c",
            "header.unchanged.name": "u",
        }
    )
    made = transformation.apply(record(given))
    assert made is not None
    schema = array(OPTIONAL_STRING, optional=True)
    expected = [
        Header("c", ["b"], schema.replace(name="c")),
        Header("u", ["a", "c"], schema.replace(name="u")),
    ]
    assert list(made.headers) == expected
    ((by_columns,),) = (
        b.records() for b in transformation.apply_batch(Batch.of([record(given)])[0])
    )
    assert list(by_columns.headers) == expected


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, "2024-07-01T14:00:00+02:00"),
        ({"include__list": "source:orders"}, "2024-07-01T14:00:00+02:00"),
        ({"include__list": "source:orders:id"}, "2024-07-01T12:00:00Z"),
        ({"include__list": "topic:topicA:at"}, "2024-07-01T14:00:00+02:00"),
        ({"exclude__list": "at"}, "2024-07-01T12:00:00Z"),
        ({"include__list": "orders:at"}, "2024-07-01T14:00:00+02:00"),
        ({"include__list": "topicA:id"}, "2024-07-01T12:00:00Z"),
    ],
)
def test_times_of_a_zone_are_converted_where_the_lists_say(
    options: dict[str, str], expected: str
) -> None:
    zoned = struct(
        ("id", INT32),
        ("at", Schema(Type.STRING, name="io.debezium.time.ZonedTimestamp")),
        optional=True,
    )
    envelope = struct(("after", zoned), ("source", struct(("table", STRING))), name="t.Envelope")
    given = Struct(
        envelope,
        [Struct(zoned, [1, "2024-07-01T12:00:00Z"]), Struct(envelope["source"], ["orders"])],
    )
    name = f"{DEBEZIUM}.TimezoneConverter"
    assert (
        value_of(name, given, converted__timezone="Europe/Berlin", **options)["after"]["at"]
        == expected
    )
    assert "unknown time zone Mars" in refused(name, converted__timezone="Mars")


def test_logical_table_router_merges_topics_and_renames_their_schemas() -> None:
    key = Struct(struct(("id", INT32), name="t.Key"), [7])
    options = {
        "topic__regex": "topic(.)",
        "topic__replacement": "all-$1",
        "key__field__name": "origin",
    }
    name = f"{DEBEZIUM}.ByLogicalTableRouter"
    made = apply(
        name,
        record(event("c", after=[1, None]), key=key),
        schema__name__adjustment__mode="avro",
        **options,
    )
    assert made is not None
    assert made.topic == "all-A"
    assert made.key_schema == struct(("id", INT32), ("origin", STRING), name="all_A.Key")
    assert made.key.values == [7, "topicA"]
    assert made.value_schema is not None
    assert (made.value_schema.name, made.value_schema["after"].name) == (
        "all_A.Envelope",
        "all_A.Value",
    )
    other = apply(name, record({"a": 1}, key=None), **options)
    assert other is not None
    assert (other.topic, other.value) == ("all-A", {"a": 1})
    message = failing(name, record({"a": 1}), DataError, **options)
    assert message == "Only Struct objects supported for [Updating schema], found: java.lang.String"
    refused(name, topic__regex=".*", topic__replacement="")


def test_headers_become_fields_also_below_dots() -> None:
    headers = Headers([Header("a", 1, INT32), Header("b", "x", STRING), Header("c", "y", STRING)])
    given = record(
        Struct(struct(("in", struct(("p", INT32)))), [Struct(struct(("p", INT32)), [7])]),
        headers=headers,
    )
    made = apply(
        f"{DEBEZIUM}.HeaderToValue",
        given,
        headers="a,b,nosuch",
        fields="a,in.b,z",
        operation="move",
    )
    assert made is not None
    assert made.value_schema == struct(("in", struct(("p", INT32), ("b", STRING))), ("a", INT32))
    assert (made.value["a"], made.value["in"].values) == (1, [7, "x"])
    assert [h.key for h in made.headers] == ["c"]
    row = Struct(struct(("a", OPTIONAL_INT32)), [7])
    options = {"headers": "a", "fields": "a", "operation": "copy"}
    made = apply(f"{DEBEZIUM}.HeaderToValue", record(row, headers=headers), **options)
    assert made is not None
    assert (made.value_schema, made.value["a"]) == (row.schema, 1)
    text = Headers([Header("a", "x", STRING)])
    failing(f"{DEBEZIUM}.HeaderToValue", record(row, headers=text), DataError, **options)
    message = failing(
        f"{DEBEZIUM}.HeaderToValue",
        record({}, headers=headers),
        DataError,
        headers="a",
        fields="a",
        operation="copy",
    )
    assert (
        message
        == "Only Struct objects supported for [Header field insertion], found: java.util.HashMap"
    )


def test_schema_changes_are_dropped_by_kind() -> None:
    change = struct(("type", STRING))
    schema = struct(
        ("tableChanges", array(change)), name="io.debezium.connector.mysql.SchemaChangeValue"
    )
    name, options = (
        f"{DEBEZIUM}.SchemaChangeEventFilter",
        {"schema__change__event__exclude__list": "DROP"},
    )
    for kinds, is_dropped in [
        (["DROP", "CREATE"], True),
        (["CREATE", "DROP"], False),
        (["DROP"], True),
        ([], False),
    ]:
        given = record(Struct(schema, [[Struct(change, [kind]) for kind in kinds]]))
        assert apply(name, given, **options) == (None if is_dropped else given)
    assert apply(name, record(1, INT32), **options) == record(1, INT32)


def test_snapshot_events_are_changed_into_insert_events() -> None:
    name = "io.debezium.connector.mysql.transforms.ReadToInsertEvent"
    assert value_of(name, event("r", after=[1, None]))["op"] == "c"
    assert value_of(name, event("u", after=[1, None]))["op"] == "u"


def outbox(code: str = "c", payload: str | None = '{"a":1,"b":[{"c":null,"d":2}]}') -> SinkRecord:
    row = Struct(OUTBOX, ["e1", "order", "o7", "created", payload, 5, 99_999])
    return record(Struct(OUTBOX_ENVELOPE, [None, row, code, 1234]))


def route(given: SinkRecord, **options: str) -> SinkRecord | None:
    return apply(f"{DEBEZIUM}.outbox.EventRouter", given, **options)


def test_outbox_rows_become_events_with_topic_key_and_payload() -> None:
    made = route(outbox())
    assert made is not None
    assert (made.topic, made.key, made.value, made.timestamp) == (
        "outbox.event.order",
        "o7",
        '{"a":1,"b":[{"c":null,"d":2}]}',
        1234,
    )
    assert list(made.headers) == [Header("id", "e1", STRING)]


def test_outbox_columns_go_where_they_are_placed() -> None:
    made = route(
        outbox(),
        table__fields__additional__placement="type:header:kind,shard:partition,made:envelope",
        table__field__event__timestamp="made",
    )
    assert made is not None
    assert (made.partition, made.timestamp) == (5, 99)
    assert made.value["payload"] == '{"a":1,"b":[{"c":null,"d":2}]}'
    assert made.value["made"] == 99_999
    assert made.value_schema is not None
    assert made.value_schema.name == "outbox.order.Value"
    assert made.headers.last_with("kind") == Header("kind", "created", STRING)
    assert "Unexpected additional field" in refused(
        f"{DEBEZIUM}.outbox.EventRouter", table__fields__additional__placement="type:nowhere"
    )
    failing(
        f"{DEBEZIUM}.outbox.EventRouter",
        outbox(),
        DataError,
        table__fields__additional__placement="zz:header",
    )


def test_outbox_payloads_are_expanded_from_json_to_structs() -> None:
    made = route(outbox(), table__expand__json__payload="true")
    assert made is not None
    items = struct(("d", OPTIONAL_INT32), name="payload.b", optional=True)
    fields = [("a", OPTIONAL_INT32), ("b", array(items, optional=True))]
    assert made.value_schema == struct(*fields, name="payload", optional=True)
    assert made.value["b"][0]["d"] == 2


def test_outbox_router_keeps_inserts_and_drops_other_events() -> None:
    assert route(outbox("d")) is None
    assert route(outbox("u")) is None
    assert route(record(None)) is None
    failing(
        f"{DEBEZIUM}.outbox.EventRouter",
        outbox("u"),
        ConnectError,
        table__op__invalid__behavior="fatal",
    )
    tombstone = route(outbox(payload=None), route__tombstone__on__empty__payload="true")
    assert tombstone is not None
    assert (tombstone.value_schema, tombstone.value) == (None, None)


def test_condition_filters_records_and_expression_routes_them() -> None:
    options = {
        "language": "connect_py.expression",
        "condition": "value.op == 'u' and value.after.id > 2",
    }
    name = f"{DEBEZIUM}.Filter"
    assert apply(name, record(event("u", after=[3, None])), **options) is not None
    assert apply(name, record(event("u", after=[2, None])), **options) is None
    assert apply(name, record(event("d", before=[3, None])), **options) is None
    assert apply(name, record(None), **options) is not None
    assert apply(name, record(None), **options, null__handling__mode="drop") is None
    assert apply(name, record(None), **options, topic__regex="other.*") is not None
    made = apply(
        f"{DEBEZIUM}.ContentBasedRouter",
        record(event("c", after=[1, None])),
        language="connect_py.expression",
        topic__expression="'new' if value.op == 'c' else None",
    )
    assert made is not None
    assert made.topic == "new"
    failing(
        name, record(event("c")), DataError, language="connect_py.expression", condition="value.op"
    )


def test_scripts_of_other_languages_are_refused_with_a_hint() -> None:
    message = refused(f"{DEBEZIUM}.Filter", language="jsr223.groovy", condition="value.op == 'u'")
    assert "connect_py.expression" in message


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("value.a.b[0] == 1", True),
        ("value['a'].nosuch.deeper", None),
        ("value.n < 3", False),
        ("'x' in value.texts and not matches(topic, 'other.*')", True),
        ("header.h if header.h else 'none'", "v"),
        ("len(value.texts) * 2 - 1", 1),
        ("upper(topic) + str(value.a.b[0])", "TOPICA1"),
        ("1 < 2 < 3 and true", True),
    ],
)
def test_expressions_are_evaluated_on_a_records_fields_and_headers(text: str, answer: Any) -> None:
    given = record(
        {"a": {"b": [1]}, "n": None, "texts": ["x"]}, headers=Headers([Header("h", "v")])
    )
    assert Expression(text)(given) == answer


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os')",
        "value.__class__()",
        "().__class__()",
        "[x for x in value]",
        "lambda: 1",
        "open('x')",
        "2 ** 99",
        "f'{value}'",
        "value.a(1)",
        "x",
        "a = 1",
        "",
        "value := 1",
        "len(value, key=1)",
        "b'x'",
        "~1",
        "1 @ 2",
    ],
)
def test_expressions_that_could_do_harm_are_refused(text: str) -> None:
    with pytest.raises(ExpressionError):
        Expression(text)


def test_members_never_lead_out_of_the_data() -> None:
    assert Expression("value.__class__")(record({})) is None
    assert Expression("topic.__class__")(record({})) is None
    with pytest.raises(DataError):
        Expression("topic * 9")(record({}))


# ---------------------------------------------------------------- Iceberg


def test_copy_value_puts_a_field_under_another_name() -> None:
    options = {"source__field": "a", "target__field": "b"}
    name = f"{ICEBERG}.CopyValue"
    made = apply(name, record(Struct(struct(("a", INT32)), [5])), **options)
    assert made is not None
    assert (made.value_schema, made.value.values) == (struct(("a", INT32), ("b", INT32)), [5, 5])
    assert value_of(name, {"a": {"x": 1}}, **options) == {"a": {"x": 1}, "b": {"x": 1}}
    assert value_of(name, {"c": 1}, **options) == {"c": 1, "b": None}
    assert apply(name, record(None), **options) == record(None)
    failing(name, record(Struct(struct(("c", INT32)), [5])), NullPointerError, **options)


def test_kafka_metadata_is_added_as_fields_or_nested_struct() -> None:
    name = "io.tabular.iceberg.connect.transforms.KafkaMetadataTransform"
    assert value_of(name, {"a": 1}) == {
        "a": 1,
        "_kafka_metadata_topic": "topicA",
        "_kafka_metadata_partition": 3,
        "_kafka_metadata_offset": 42,
        "_kafka_metadata_timestamp": NOW,
    }
    nested = value_of(name, {"a": 1}, nested="true", field_name="m", external_field="env,prod")
    assert nested["m"] == {
        "topic": "topicA",
        "partition": 3,
        "offset": 42,
        "timestamp": NOW,
        "env": "prod",
    }
    made = apply(name, record(Struct(struct(("a", INT32)), [5])), nested="true", field_name="m")
    assert made is not None
    inner = struct(
        ("topic", STRING), ("partition", INT32), ("offset", INT64), ("timestamp", OPTIONAL_INT64)
    )
    assert made.value_schema == struct(("a", INT32), ("m", inner))
    failing(name, record("text"), DataError)
    assert "Could not parse" in refused(name, external_field="a")


def test_two_transformations_that_add_metadata_keep_their_own_settings() -> None:
    name = f"{ICEBERG}.KafkaMetadataTransform"
    first = configured({"type": name, "field_name": "a", "nested": "true"})
    second = configured({"type": name, "external_field": "env,prod"})
    for _ in range(2):
        made = first.apply(record({"x": 1}))
        assert made is not None
        assert set(made.value) == {"x", "a"}
        again = second.apply(made)
        assert again is not None
        assert again.value["a"] == made.value["a"]
        assert set(again.value) == {
            "x",
            "a",
            "_kafka_metadata_topic",
            "_kafka_metadata_partition",
            "_kafka_metadata_offset",
            "_kafka_metadata_timestamp",
            "_kafka_metadata_env",
        }


def test_dms_events_are_lifted_to_rows_with_change_metadata() -> None:
    given = {
        "data": {"id": 1},
        "metadata": {
            "operation": "update",
            "timestamp": "t",
            "schema-name": "s",
            "table-name": "x",
        },
    }
    assert value_of(f"{ICEBERG}.DmsTransform", given) == {
        "id": 1,
        "_cdc": {"op": "U", "ts": "t", "source": "s.x"},
    }
    assert apply(f"{ICEBERG}.DmsTransform", record({"data": 1})) is None
    assert value_of(
        f"{ICEBERG}.DmsTransform", {"data": {}, "metadata": {"operation": "load", "table-name": 1}}
    ) == {"_cdc": {"op": "I", "ts": None, "source": "null.1"}}
    failing(
        f"{ICEBERG}.DmsTransform",
        record(Struct(struct(("a", INT32)), [1])),
        UnsupportedOperationError,
    )
    failing(f"{ICEBERG}.DmsTransform", record({"data": {}, "metadata": {}}), NullPointerError)
    failing(f"{ICEBERG}.DmsTransform", record("x"), DataError)


def test_json_texts_become_structs_with_inferred_field_types() -> None:
    name = f"{ICEBERG}.JsonToMapTransform"
    text = (
        '{"i":1,"l":5000000000,"f":1.5,"b":true,"s":"x","big":99999999999999999999,"o":{"p":{"q":1}},"e":{},"n":null,'
        '"a":[1,2],"m":[1,5000000000],"objects":[{"k":1}],"lists":[[1],[2]],"none":[]}'
    )
    made = apply(name, record(text, STRING))
    assert made is not None
    texts, items = (
        map_of(STRING, STRING, optional=True),
        map_of(OPTIONAL_STRING, OPTIONAL_STRING, optional=True),
    )
    assert made.value_schema == struct(
        ("i", OPTIONAL_INT32),
        ("l", OPTIONAL_INT64),
        ("f", Schema(Type.FLOAT64, optional=True)),
        ("b", Schema(Type.BOOLEAN, optional=True)),
        ("s", OPTIONAL_STRING),
        ("big", decimal(0, optional=True)),
        ("o", texts),
        ("a", array(OPTIONAL_INT32, optional=True)),
        ("m", array(OPTIONAL_STRING, optional=True)),
        ("objects", array(items, optional=True)),
        ("lists", array(array(OPTIONAL_INT32, optional=True), optional=True)),
    )
    assert made.value["o"] == {"p": '{"q":1}'}
    assert made.value["m"] == ["1", "5000000000"]
    assert value_of(name, '{"a":1,"b":"x"}', json__root="true")["payload"] == {"a": "1", "b": "x"}
    numbers = value_of(name, ' {"a":1e10,"b":[1e-7],"c":1e999} behind', json__root="true")
    assert numbers["payload"] == {"a": "1.0E10", "b": "[1.0E-7]", "c": '"Infinity"'}
    for bad in ("[1]", "x", "", '{"a":NaN}', "[" * 5000):
        failing(name, record(bad, STRING), DataError)


# ---------------------------------------------------------------- Confluent


def test_drop_removes_the_value_and_treats_schema_as_configured() -> None:
    made = apply(f"{CONFLUENT}.Drop$Value", record(1, INT32))
    assert made is not None
    assert (made.value_schema, made.value) == (None, None)
    kept = apply(f"{CONFLUENT}.Drop$Value", record(1, INT32), schema__behavior="force_optional")
    assert kept is not None
    assert kept.value_schema == OPTIONAL_INT32
    failing(f"{CONFLUENT}.Drop$Value", record(1, INT32), DataError, schema__behavior="validate")


def test_topics_are_taken_from_fields_and_headers() -> None:
    def topic(name: str, given: SinkRecord, **options: str) -> str:
        made = apply(f"{CONFLUENT}.ExtractTopic${name}", given, **options)
        assert made is not None
        return made.topic

    assert topic("Value", record({"a": "t"}), field="a") == "t"
    assert (
        topic("Value", record({"a": {"b": "t"}}), field="$.a.b", field__format="JSON_PATH") == "t"
    )
    assert topic("Key", record({}, key="t")) == "t"
    assert topic("Header", record({}, headers=Headers([Header("h", "t")])), field="h") == "t"
    assert topic("Value", record({}), field="a", skip__missing__or__null="true") == "topicA"
    failing(f"{CONFLUENT}.ExtractTopic$Value", record({}), DataError, field="a")
    assert "Invalid JSON path" in refused(
        f"{CONFLUENT}.ExtractTopic$Value", field="$[", field__format="JSON_PATH"
    )


def test_filter_includes_or_excludes_records_by_json_path() -> None:
    name = f"{CONFLUENT}.Filter$Value"
    options = {"filter__condition": "$[?(@.a == 'x')]", "filter__type": "include"}
    assert apply(name, record({"a": "x"}), **options) is not None
    assert apply(name, record({"a": "y"}), **options) is None
    plain = {"filter__condition": "$.a", "filter__type": "exclude"}
    assert apply(name, record({"a": 1}), **plain) is None
    failing(name, record({"b": 1}), DataError, **plain)
    assert apply(name, record({"b": 1}), **plain, missing__or__null__behavior="include") is not None


def test_tombstones_are_dropped_or_fail_by_configured_behavior() -> None:
    name = f"{CONFLUENT}.TombstoneHandler"
    assert apply(name, record(None)) is None
    assert apply(name, record(1)) == record(1)
    failing(name, record(None), DataError, behavior="fail")


def test_gzip_bytes_are_decompressed_and_invalid_ones_fail() -> None:
    schema = Schema(Type.BYTES)
    made = apply(f"{CONFLUENT}.GzipDecompress$Value", record(gzip.compress(b"text"), schema))
    assert made is not None
    assert made.value == b"text"
    failing(f"{CONFLUENT}.GzipDecompress$Value", record(b"text", schema), DataError)
    failing(
        f"{CONFLUENT}.GzipDecompress$Value", record(gzip.compress(b"text")[:-3], schema), DataError
    )


def test_topics_are_made_of_times_in_values() -> None:
    name = f"{CONFLUENT}.MessageTimestampRouter"
    options = {"message__timestamp__keys": "nosuch,at", "message__timestamp__format": "yyyy-MM-dd"}
    made = apply(name, record({"at": "2024-02-29"}), **options)
    assert made is not None
    assert made.topic == "topicA-20240229"
    failing(name, record({"at": "soon"}), DataError, **options)
    failing(name, record({}), DataError, **options)
