"""JsonConverter with schemas: both forms, round trips of values, and recorded messages."""

from __future__ import annotations

import gc
import json
from collections import Counter
from contextlib import suppress
from typing import Any
from unittest.mock import patch

import pytest
from fixtures.both_forms import PLANS, Message, agree, both_forms, poll_of
from fixtures.converter_rows import by_columns, by_reference, recorded, same
from fixtures.native_decoder import reading_by, with_and_without
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from json_strategies import ODD_MESSAGES, ODD_PAYLOADS, PASSED_OVER, SCHEMAS

from connect_py.api.errors import DataError, NotColumnar
from connect_py.api.schema import Schema, SchemaAndValue
from connect_py.converters.json.json_converter import JsonConverter

FILES = [
    "json-schema",
    "variant-connect-string",
    "variant-iso-double",
    "variant-micro-base64url",
    "variant-nano-avro-names",
    "variant-unwrapped-at-source",
]


def converter(**configs: str) -> JsonConverter:
    made = JsonConverter()
    made.configure({name.replace("_", "."): value for name, value in configs.items()}, is_key=False)
    return made


@st.composite
def schema_polls(draw: Any) -> list[Message]:
    """Messages of one or two schemas, with tombstones, odd payloads and bad messages among them."""
    good: list[bytes] = []
    odd = draw(st.lists(ODD_MESSAGES, max_size=2))
    writer = converter(replace_null_with_default="false")
    for _ in range(draw(st.integers(1, 2))):
        schema, values = draw(SCHEMAS)
        for value in draw(st.lists(values, min_size=1, max_size=3)):
            if value is None and not schema.optional:
                continue  # a default at the top
            try:
                message = writer.from_connect("t", schema, value)
            except DataError:
                continue  # a null where none may be, though there is a default
            assert message is not None
            good.append(message)
    if good:
        head = good[-1][: good[-1].index(b',"payload":') + len(b',"payload":')]
        odd += [head + payload + b"}" for payload in draw(st.lists(ODD_PAYLOADS, max_size=2))]
    return poll_of(draw(PLANS), good or [b'{"schema":{"type":"int8"},"payload":1}'], odd)


columnar: Counter[bool] = Counter()


@with_and_without
@both_forms(JsonConverter)
@given(poll=schema_polls(), replace=st.sampled_from(["true", "false"]))
def test_columns_of_json_with_schema_equal_the_reference_rows(
    decoder: str, poll: list[Message], replace: str
) -> None:
    with reading_by(decoder):
        columnar[agree(converter(replace_null_with_default=replace), poll, twice=True)] += 1


def test_most_polls_with_schemas_were_columns() -> None:
    assert columnar[True] >= columnar.total() / 4


@given(SCHEMAS.flatmap(lambda t: st.tuples(st.just(t[0]), t[1])))
@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
def test_a_value_that_was_written_is_read_again(pair: tuple[Schema, Any]) -> None:
    schema, value = pair
    made = converter(replace_null_with_default="false")
    try:
        data = made.from_connect("t", schema, value)
    except DataError:
        # a null where none may be, though it has a default
        assert value is None or not schema.type.is_primitive
        return
    assert same(made.to_connect("t", data), SchemaAndValue(schema, value))


@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize("replace", ["true", "false"])
def test_columns_of_recorded_json_give_the_rows_of_the_reference(file: str, replace: str) -> None:
    for topic, data in recorded(file).items():
        made = converter(replace_null_with_default=replace)
        expected = by_reference(made, data)
        rows = by_columns(made, data)
        assert all(map(same, rows, expected)), topic


@pytest.mark.parametrize("file", FILES)
def test_recorded_json_is_written_again_byte_by_byte(file: str) -> None:
    made = converter(replace_null_with_default="false")
    for data in recorded(file).values():
        for message in data:
            row = made.to_connect("t", message)
            assert made.from_connect("t", *row) == message


def test_text_that_looks_like_an_escape_stays_text() -> None:
    made = converter(schemas_enable="false")
    assert made.from_connect("t", None, "\\u001f \x1f") == b'"\\\\u001f \\u001F"'


def test_two_schemas_make_two_runs_and_a_tombstone_makes_none() -> None:
    made = converter()
    one, two = (b'{"schema":{"type":"%s"},"payload":1}' % kind for kind in (b"int32", b"int64"))
    runs = made.to_batch("t", [None, one, None, one, two, None, two])
    assert [(r.start, r.stop) for r in runs] == [(0, 4), (4, 7)]
    assert runs[0].column.tombstone.to_pylist() == [True, False, True, False]


def test_payload_in_unclosed_envelope_is_a_bad_record() -> None:
    whole = b'{"schema":{"type":"int32"},"payload":12}'
    (run,) = converter().to_batch("t", [whole, whole[:-1]])
    assert run.column.data.to_pylist() == [12, None]
    assert list(run.failures) == [1]


def test_many_bad_messages_cost_no_more_than_their_number() -> None:
    good = b'{"schema":{"type":"int32"},"payload":12}'
    (run,) = converter().to_batch("t", [good, b"{", None] * 3000)
    assert len(run.failures) == 3000
    gc.collect()
    assert json.loads(good)["payload"] == run.column.data[0].as_py()


@with_and_without
@pytest.mark.parametrize("enveloped", [True, False])
@pytest.mark.parametrize("member", PASSED_OVER, ids=range(len(PASSED_OVER)))
def test_what_nobody_asked_for_is_refused_as_by_the_reference(
    decoder: str, enveloped: bool, member: bytes
) -> None:
    schema = b"""{"type":"struct","fields":[
        {"type":"int32","field":"a"},{"type":"int32","field":"b","optional":true}]}"""
    payloads = [b'{"a":1}', b'{"a":2,' + member + b"}", b'{"a":3,"b":4}']
    if enveloped:
        made, data = (
            converter(),
            [b'{"schema":%s,"payload":%s}' % (schema, payload) for payload in payloads],
        )
    else:
        made, data = converter(schema_content=schema.decode()), payloads
    with reading_by(decoder):
        assert same(by_columns(made, data), by_reference(made, data))


@with_and_without
def test_default_of_negative_scale_keeps_the_column_type(decoder: str) -> None:
    schema = (
        b'{"type":"bytes","name":"org.apache.kafka.connect.data.Decimal","version":1,'
        b'"parameters":{"scale":"-2"},"optional":true,"default":"AQ==","field":"d"}'
    )
    head = b'{"schema":{"type":"struct","fields":[%s]},"payload":' % schema
    made, data = (
        converter(),
        [head + payload + b"}" for payload in (b'{"d":"CQ=="}', b'{"d":null}', b"{}")],
    )
    with reading_by(decoder):
        (run,) = made.to_batch("t", data)
        assert str(run.column.data.type.field("d").type) == "decimal128(38, -2)"
        assert same(by_columns(made, data), by_reference(made, data))


HALFWAY = [
    ("1.00000005960464477539062500001", "0x1.000002p+0"),
    ("1.000000059604644775390625", "0x1.0p+0"),
    ("1.00000005960464477539062499999", "0x1.0p+0"),
    ("1.00000017881393432617187499999", "0x1.000002p+0"),
    ("16777217", "0x1.0p+24"),
    ("16777219", "0x1.000004p+24"),
    ("-16777217.0000000001", "-0x1.000002p+24"),
    ("3.40282356779733661637539395458142568447e38", "0x1.fffffep+127"),
    ("3.40282356779733661637539395458142568448e38", "inf"),
    ("1e39", "inf"),
    ("1.5", "0x1.8p+0"),
    ("0", "0x0p+0"),
    ("1e-45", "0x1p-149"),
    ("7.006492321624085354618e-46", "0x0p+0"),
    ("7.0064923216240853546187e-46", "0x1p-149"),
]


@with_and_without
@pytest.mark.parametrize(("text", "single"), HALFWAY)
def test_numbers_of_32_bits_are_rounded_once(decoder: str, text: str, single: str) -> None:
    head = b'{"schema":{"type":"struct","fields":[{"type":"float","optional":true,"field":"f"}]},"payload":'  # noqa: E501 - one literal
    made, data = (
        converter(),
        [head + b'{"f":%s}}' % number for number in (b"0.5", text.encode(), b"null")],
    )
    with reading_by(decoder):
        rows = by_reference(made, data)
        assert rows[1].value.get("f") == float.fromhex(single)
        with suppress(NotColumnar):
            assert same(by_columns(made, data), rows)


@with_and_without
def test_defaults_of_containers_replace_nulls_in_columns(decoder: str) -> None:
    schema = b"""{"type":"struct","fields":[
        {"field":"i","type":"int32"},
        {"field":"l","type":"array","items":{"type":"string"},"default":["a","b"]},
        {"field":"m","type":"map","keys":{"type":"string"},"values":{"type":"int8"},
         "default":{"k":1}}]}"""
    payloads = [b'{"i":1}', b'{"i":2,"l":[],"m":{}}', b'{"i":3,"l":null,"m":null}']
    made = converter(schema_content=schema.decode())
    with reading_by(decoder):
        (run,) = made.to_batch("t", payloads)
        assert not run.failures
        assert run.column.data.field("l").to_pylist() == [["a", "b"], [], ["a", "b"]]
        assert same(by_columns(made, payloads), by_reference(made, payloads))


@pytest.mark.parametrize("keys", [b"string", b"int32", b"boolean", b"bytes"])
def test_maps_are_decoded_natively(keys: bytes) -> None:
    text = {b"string": b'"a"', b"int32": b"1", b"boolean": b"true", b"bytes": b'"AQ=="'}[keys]
    schema = b'{"type":"map","keys":{"type":"%s"},"values":{"type":"int64"}}' % keys
    payload = b'{"a":5}' if keys == b"string" else b"[[%s,5]]" % text
    made = converter(schema_content=schema.decode())
    with (
        reading_by("native"),
        patch.object(made, "to_connect", side_effect=AssertionError("converted row by row")),
    ):
        (run,) = made.to_batch("t", [payload, None, payload])
    assert [len(each or ()) for each in run.column.data.to_pylist()] == [1, 0, 1]
    assert same(by_columns(made, [payload]), by_reference(made, [payload]))
