"""The stock transformations and predicates."""

from __future__ import annotations

import importlib
import logging
import subprocess
import sys
from decimal import Decimal
from typing import Any

import pytest
from transforms_cases import NOW, Cases, record

from connect_py.api.batch import Batch
from connect_py.api.errors import ConfigError, DataError, SchemaBuilderError
from connect_py.api.plugin import PluginKind
from connect_py.api.predicate import Predicate
from connect_py.api.record import Header, Headers, SinkRecord, SourceRecord
from connect_py.api.schema import (
    INT32,
    OPTIONAL_INT32,
    OPTIONAL_INT64,
    OPTIONAL_STRING,
    STRING,
    Schema,
    Struct,
    Type,
    decimal,
    struct,
    timestamp,
)
from connect_py.api.transformation import Transformation
from connect_py.java.errors import IndexOutOfBoundsError
from transforms import PLUGINS
from transforms.filter import Filter
from transforms.insert_field import InsertFieldKey, InsertFieldValue
from transforms.predicates.has_header_key import HasHeaderKey
from transforms.predicates.record_is_tombstone import RecordIsTombstone
from transforms.predicates.topic_name_matches import TopicNameMatches
from transforms.regex_router import RegexRouter
from transforms.replace_field import ReplaceFieldKey, ReplaceFieldValue

KAFKA = "org.apache.kafka.connect.transforms"
STOCK = Cases(KAFKA, columnar=True)
apply, failing, refused = STOCK.apply, STOCK.failing, STOCK.refused


def test_insert_overwrites_members_of_schemaless_values() -> None:
    made = apply("InsertField$Value", record({"a": 1}), timestamp__field="ts", topic__field="a")
    assert made.value == {"a": "topicA", "ts": NOW}


def test_insert_omits_a_null_timestamp_from_schemaless_values() -> None:
    made = apply(
        "InsertField$Value", record({"a": 1}, at=None), timestamp__field="ts", offset__field="o"
    )
    assert made.value == {"a": 1, "o": 42}


def test_insert_adds_fields_in_fixed_order_with_their_flags() -> None:
    schema = struct(("d", decimal(2)))
    options = {
        "static__value": " v ",
        "static__field": "s",
        "timestamp__field": "ts",
        "offset__field": "o",
        "partition__field": "p?",
        "topic__field": "t!",
    }
    made = apply("InsertField$Value", record(Struct(schema, [Decimal("1.25")])), **options)
    assert made.value_schema == struct(
        ("d", decimal(2)),
        ("t", STRING),
        ("p", OPTIONAL_INT32),
        ("o", OPTIONAL_INT64),
        ("ts", timestamp(optional=True)),
        ("s", OPTIONAL_STRING),
    )
    assert made.value.values == [Decimal("1.25"), "topicA", 3, 42, NOW, "v"]


def test_insert_of_a_name_that_exists_fails() -> None:
    message = failing(
        "InsertField$Value",
        record(Struct(struct(("d", INT32)), [1])),
        SchemaBuilderError,
        topic__field="d",
    )
    assert message == "Cannot create field because of field name duplication d"


def test_insert_leaves_a_required_timestamp_null_without_an_error() -> None:
    given = record(Struct(struct(("b", OPTIONAL_INT32)), [1]), at=None)
    made = apply("InsertField$Value", given, timestamp__field="ts!")
    assert made.value.values == [1, None]
    assert made.value_schema == struct(("b", OPTIONAL_INT32), ("ts", timestamp()))


def test_copying_a_required_field_that_is_null_fails_afterwards() -> None:
    given = record(Struct(struct(("ts", timestamp())), [None]))
    expected = 'Invalid value: null used for required field: "ts", schema type: INT64'
    assert failing("InsertField$Value", given, DataError, topic__field="t") == expected
    assert failing("ReplaceField$Value", given, DataError, exclude="x") == expected


def test_insert_makes_the_container_required_and_takes_defaults_for_nulls() -> None:
    schema = struct(
        ("b", Schema(Type.INT32, optional=True, default=5)), optional=True, name="n", version=2
    )
    made = apply("InsertField$Value", record(Struct(schema, [None])), topic__field="t")
    assert made.value.values == [5, "topicA"]
    assert made.value_schema is not None
    assert (made.value_schema.optional, made.value_schema.name, made.value_schema.version) == (
        False,
        "n",
        2,
    )
    options = {"topic__field": "t", "replace__null__with__default": "false"}
    assert apply("InsertField$Value", record(Struct(schema, [None])), **options).value.values == [
        None,
        "topicA",
    ]


@pytest.mark.parametrize("schema", [None, struct(("a", INT32), optional=True)])
def test_null_values_pass_insert_and_replace_unchanged(schema: Schema | None) -> None:
    given = record(None, schema)
    assert apply("InsertField$Value", given, topic__field="t") == given
    assert apply("InsertField$Key", record({"a": 1}, key=None), topic__field="t") == record(
        {"a": 1}, key=None
    )
    assert apply("InsertField$Key", record(None, schema, key={}), topic__field="t").key == {
        "t": "topicA"
    }
    assert apply("ReplaceField$Value", given, exclude="a") == given


def test_insert_into_keys_works_on_the_key() -> None:
    assert apply("InsertField$Key", record({}, key={"id": 1}), topic__field="t").key == {
        "id": 1,
        "t": "topicA",
    }


def test_insert_into_what_is_no_struct_or_map_fails() -> None:
    message = failing("InsertField$Value", record("x", STRING), DataError, topic__field="t")
    assert message == "Only Struct objects supported for [field insertion], found: java.lang.String"
    message = failing("InsertField$Value", record(["x"]), DataError, topic__field="t")
    assert message == (
        "Only Map objects supported in absence of schema for [field insertion], found: "
        "java.util.ArrayList"
    )


def test_offsets_exist_for_sink_records_only() -> None:
    transform = InsertFieldValue()
    transform.configure({"offset.field": "o"})
    with pytest.raises(DataError, match="Only SinkRecord supported for"):
        transform.apply(SourceRecord("t", None, None, None, None, {"a": 1}))


@pytest.mark.parametrize(
    ("props", "message"),
    [
        ({}, "No field insertion configured"),
        ({"static.field": "s"}, "No value specified for static field: s"),
    ],
)
def test_insert_without_anything_to_insert_is_refused(props: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        InsertFieldKey().configure(props)


@pytest.mark.parametrize(
    ("value", "options", "expected"),
    [
        ({"a": 1, "b": 2, "c": 3}, {"include": "a,b", "exclude": "a"}, {"b": 2}),
        ({"a": 1, "b": 2}, {"include": "x", "renames": "a:x"}, {}),
        ({"a": 1}, {"blacklist": "a"}, {}),
        ({"a": 1, "b": 2}, {"whitelist": "a"}, {"a": 1}),
        ({"a": 1, "b": 2}, {"renames": "a:b,b:a"}, {"b": 1, "a": 2}),
        ({"b": 2}, {"renames": "x:b"}, {"b": 2}),
        ({"a": {"x": 1}}, {"renames": "a:z"}, {"z": {"x": 1}}),
    ],
)
def test_replace_filters_and_renames_fields_of_schemaless_values(
    value: Any, options: dict[str, str], expected: Any
) -> None:
    assert apply("ReplaceField$Value", record(value), **options).value == expected


def test_replace_warns_of_the_old_names_of_its_options(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        ReplaceFieldValue().configure({"blacklist": "a"})
    assert "blacklist is deprecated, use exclude" in caplog.text


def test_replace_swaps_names_with_a_schema() -> None:
    given = record(Struct(struct(("a", INT32), ("b", STRING)), [1, "x"]))
    made = apply("ReplaceField$Value", given, renames="a:b,b:a")
    assert made.value == Struct.of(struct(("b", INT32), ("a", STRING)), b=1, a="x")


def test_replace_fails_for_a_rename_whose_source_is_missing() -> None:
    given = record(Struct(struct(("b", INT32)), [1]))
    assert (
        failing("ReplaceField$Value", given, DataError, renames="x:b")
        == "x is not a valid field name"
    )


def test_replace_onto_a_field_that_stays_fails() -> None:
    given = record(Struct(struct(("a", INT32), ("b", INT32)), [1, 2]))
    failing("ReplaceField$Value", given, SchemaBuilderError, renames="a:b")


def test_replace_refuses_what_is_no_mapping() -> None:
    with pytest.raises(ConfigError, match="Invalid rename mapping: a"):
        ReplaceFieldKey().configure({"renames": "a"})


def test_router_renames_only_topics_that_match_as_a_whole() -> None:
    assert apply("RegexRouter", record({}), regex="topic", replacement="x").topic == "topicA"
    made = apply("RegexRouter", record({}), regex="(?<p>topic)(.*)", replacement="${p}_$2")
    assert (made.topic, made.partition, made.origin.topic) == ("topic_A", 3, "topicA")


def test_router_fails_every_record_for_a_missing_regex_group() -> None:
    assert (
        failing(
            "RegexRouter", record({}), IndexOutOfBoundsError, regex="(topic).*", replacement="$2"
        )
        == "No group 2"
    )


def test_router_refuses_an_invalid_regular_expression_at_configuration() -> None:
    with pytest.raises(ConfigError, match="Invalid regex"):
        RegexRouter[SinkRecord]().configure({"regex": "(", "replacement": ""})


def test_filter_drops_every_record_in_both_forms() -> None:
    transform: Filter[SinkRecord] = Filter()
    transform.configure({})
    (batch,) = Batch.of([record({})])
    assert transform.apply(record({})) is None
    assert transform.apply_batch(batch) == []


def test_tombstones_are_null_values_with_or_without_a_schema() -> None:
    predicate: RecordIsTombstone[SinkRecord] = RecordIsTombstone()
    predicate.configure({})
    given = [record(None), record({"a": 1}), record(None)]
    (batch,) = Batch.of(given)
    assert [predicate.test(r) for r in given] == [True, False, True]
    assert predicate.test_batch(batch).to_pylist() == [True, False, True]  # type: ignore[union-attr] # a mask
    assert predicate.test(record(None, STRING.replace(optional=True)))
    assert predicate.test_batch(batch.slice(0, 1)) is True
    assert predicate.test_batch(batch.slice(1, 2)) is False


def test_header_predicate_asks_for_one_header_of_the_name() -> None:
    predicate: HasHeaderKey[SinkRecord] = HasHeaderKey()
    predicate.configure({"name": "h"})
    given = [record({}), record({}).replace(headers=Headers([Header("x", 1), Header("h", None)]))]
    (batch,) = Batch.of(given)
    assert [predicate.test(r) for r in given] == [False, True]
    assert predicate.test_batch(batch).to_pylist() == [False, True]  # type: ignore[union-attr] # a mask
    (bare,) = Batch.of(given[:1])
    assert predicate.test_batch(bare) is False


def test_topic_predicate_sees_the_topic_as_it_is_now() -> None:
    predicate: TopicNameMatches[SinkRecord] = TopicNameMatches()
    predicate.configure({"pattern": "new.*"})
    routed = apply("RegexRouter", record({}), regex=".*", replacement="newer")
    (batch,) = Batch.of([routed])
    assert (predicate.test(routed), predicate.test_batch(batch), predicate.test(record({}))) == (
        True,
        True,
        False,
    )


@pytest.mark.parametrize("pattern", ["", "("])
def test_topic_predicate_refuses_patterns_that_cannot_be(pattern: str) -> None:
    with pytest.raises(ConfigError):
        TopicNameMatches[SinkRecord]().configure({"pattern": pattern})


def test_every_listed_plugin_loads_as_its_declared_kind() -> None:
    bases = {PluginKind.TRANSFORMATION: Transformation, PluginKind.PREDICATE: Predicate}
    for plugin in PLUGINS:
        module, _, name = plugin.python.partition(":")
        assert issubclass(getattr(importlib.import_module(module), name), bases[plugin.kind])


def test_loading_every_plugin_loads_no_arrow() -> None:
    code = "import importlib, sys, transforms\n"
    code += "for p in transforms.PLUGINS: importlib.import_module(p.python.partition(':')[0])\n"
    code += "sys.exit('pyarrow' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=30, check=False).returncode == 0
