"""Kafka's transformations return the results of Java's, for rows and for batches of one row."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from transforms_cases import NOW, Cases, record
from transforms_chain import configured

from connect_py.api.batch import Batch
from connect_py.api.errors import ConnectError, DataError, NotColumnar
from connect_py.api.record import Header, Headers, RecordOrigin, SinkRecord
from connect_py.api.schema import (
    FLOAT32,
    INT16,
    INT32,
    INT64,
    OPTIONAL_INT32,
    OPTIONAL_STRING,
    STRING,
    TIMESTAMP,
    Schema,
    Struct,
    Type,
    array,
    date,
    decimal,
    map_of,
    struct,
    time,
    timestamp,
)
from connect_py.clock import SystemClock
from connect_py.error_handling.error_config import ErrorConfig
from connect_py.error_handling.error_handler import ErrorHandler
from connect_py.java.date_format import JavaDateFormatError, java_date_format
from connect_py.java.errors import IllegalArgumentError, NullPointerError
from connect_py.task.transformation_chain import ChainLink, TransformationChain
from transforms.predicates.record_is_tombstone import RecordIsTombstone

KAFKA = "org.apache.kafka.connect.transforms"
STOCK = Cases(KAFKA, columnar=True)
apply, failing, refused = STOCK.apply, STOCK.failing, STOCK.refused
MICRO = Schema(Type.INT64, optional=True, name="io.debezium.time.MicroTimestamp")


def one(schema: Schema, value: Any, name: str = "a") -> SinkRecord:
    return record(Struct(struct((name, schema)), [value]))


def cast(value: Any, spec: str, schema: Schema | None = None) -> Any:
    return apply("Cast$Value", record(value, schema), spec=spec).value


def test_cast_adds_an_absent_field_as_null() -> None:
    assert apply("Cast$Value", record({"a": "12"}), spec="a:int32, b:string").value == {
        "a": 12,
        "b": None,
    }


@pytest.mark.parametrize(
    ("value", "kind", "expected"),
    [
        (300, "int8", 44),
        (70_000, "int16", 4464),
        (3e10, "int32", 2_147_483_647),
        (3e10, "int8", -1),
        (float("nan"), "int32", 0),
        (-1.9, "int32", -1),
        (float("inf"), "int64", 2**63 - 1),
    ],
)
def test_cast_narrows_numbers_as_java_does(value: Any, kind: str, expected: int) -> None:
    assert cast(value, kind) == expected


def test_cast_parses_integers_strictly() -> None:
    for text in ("1.0", " 1", "1_000", "", "99999999999"):
        message = failing("Cast$Value", record(text), DataError, spec="int32")
        assert message == f"Value ({text}) was out of range for requested data type"
    assert cast("١٢", "int32") == 12


def test_cast_parses_floats_as_java_does() -> None:
    assert [cast(text, "float64") for text in (" 1f", "0x1p3", "Infinity", "1e400", "-.5D")] == [
        1.0,
        8.0,
        float("inf"),
        float("inf"),
        -0.5,
    ]
    for text in ("inf", "nan", "1_0", "NaNf"):
        failing("Cast$Value", record(text), DataError, spec="float64")


def test_cast_to_boolean_truncates_numbers_and_ignores_case() -> None:
    assert [cast(value, "boolean") for value in (0.5, "1", "TrUe", 2)] == [False, False, True, True]


def test_cast_formats_numbers_as_java_does() -> None:
    assert [cast(v, "string") for v in (1.0, 1e7, 9_999_999.0, 0.001, 0.0001, True)] == [
        "1.0",
        "1.0E7",
        "9999999.0",
        "0.001",
        "1.0E-4",
        "true",
    ]
    assert cast(1.100000023841858, "string", FLOAT32) == "1.1"


def test_cast_formats_timestamps_by_value_and_drops_schema_names() -> None:
    texts = [cast(ms, "string", timestamp()) for ms in (0, -3_600_000, 1_700_006_400_000, NOW)]
    assert texts == ["00:00:00.000Z", "23:00:00.000Z", "2023-11-15", "2023-11-14T22:13:20.123Z"]
    assert apply("Cast$Value", record(0, timestamp()), spec="string").value_schema == STRING
    assert apply("Cast$Value", record(0, timestamp()), spec="int64").value_schema == timestamp()


def test_cast_converts_decimals_and_encodes_bytes() -> None:
    assert cast(Decimal("12.99"), "int32", decimal(2)) == 12
    assert cast(Decimal("1E+3"), "string", decimal(-3)) == "1E+3"
    assert cast(b"\1\2", "string", Schema(Type.BYTES)) == "AQI="
    failing("Cast$Value", record(b"\1", Schema(Type.BYTES)), DataError, spec="int32")


def test_cast_converts_default_values() -> None:
    schema = struct(
        ("a", timestamp(optional=True)), ("b", Schema(Type.INT32, optional=True, default=9))
    )
    given = record(Struct(schema, [NOW, None]))
    for replace, expected in (("true", "9"), ("false", None)):
        made = apply("Cast$Value", given, spec="b:string", replace__null__with__default=replace)
        assert made.value.values == [NOW, expected]
        assert made.value_schema == struct(
            ("a", timestamp(optional=True)), ("b", Schema(Type.STRING, optional=True, default="9"))
        )


def test_cast_refuses_containers_and_lists_the_supported_types() -> None:
    message = failing("Cast$Value", one(array(INT32), [1]), DataError, spec="a:string")
    assert message.startswith(
        "Cast transformation does not support casting from ARRAY; supported types are ["
    )


def test_cast_refuses_specs_that_mean_nothing() -> None:
    assert "Must specify at least one field to cast." in refused("Cast$Value", spec="")
    assert "Invalid type found in casting spec: foo" in refused("Cast$Value", spec="a:foo")
    assert "does not support casting to BYTES" in refused("Cast$Value", spec="bytes")
    assert "Invalid rename mapping: a:int32:b" in refused("Cast$Value", spec="a:int32:b")
    assert "only specify" in refused("Cast$Value", spec="int8,a:int8").replace("ony", "only")


def test_mask_fails_on_tombstones() -> None:
    message = failing("MaskField$Value", record(None), DataError, fields="a")
    assert (
        message == "Only Map objects supported in absence of schema for [mask fields], found: null"
    )


def test_predicate_excludes_tombstones_from_the_mask() -> None:
    predicate: RecordIsTombstone[SinkRecord] = RecordIsTombstone()
    predicate.configure({})
    mask = configured({"type": f"{KAFKA}.MaskField$Value", "fields": "a"})
    link = ChainLink(mask, "MaskField$Value", predicate, negate=True)
    errors = ErrorHandler(ErrorConfig(), [], SystemClock(), lambda seconds: None)
    chain = TransformationChain([link], errors)
    given = [record({"a": "x"}), record(None), record({"a": "y"})]
    masked = [record({"a": ""}), record(None), record({"a": ""})]
    assert chain.process_rows(given) == masked


def test_mask_converts_its_replacement_to_the_type_of_the_field() -> None:
    def masked(row: Any, replacement: str, fields: str = "a") -> Any:
        return apply("MaskField$Value", record(row), fields=fields, replacement=replacement).value

    assert masked({"a": 5}, "12.7") == {"a": 12}
    assert masked({"a": "x", "n": None}, "***", "a,n") == {"a": "***", "n": None}
    message = failing(
        "MaskField$Value", record({"a": True}), DataError, fields="a", replacement="1"
    )
    assert message == "Cannot mask value of type class java.lang.Boolean with custom replacement."
    message = failing("MaskField$Value", record({"a": 5}), DataError, fields="a", replacement="abc")
    assert message == "Unable to convert abc (class java.lang.String) to a number"
    assert "String must be non-empty" in refused("MaskField$Value", fields="a", replacement="")
    assert "Empty list" in refused("MaskField$Value", fields="")


def test_mask_of_a_decimal_preserves_its_scale() -> None:
    made = apply("MaskField$Value", one(decimal(2), Decimal("1.25")), fields="a").value["a"]
    assert (made, made.as_tuple().exponent) == (Decimal(0), -2)


def test_mask_puts_nothing_in_place_of_each_type() -> None:
    row = {"a": "x", "b": 1, "c": 2.5, "d": True, "e": [1], "f": {"g": 1}, "h": None}
    assert apply("MaskField$Value", record(row), fields="a,b,c,d,e,f,h,new").value == {
        "a": "",
        "b": 0,
        "c": 0.0,
        "d": False,
        "e": [],
        "f": {},
        "h": None,
        "new": None,
    }
    message = failing("MaskField$Value", one(Schema(Type.BYTES), b"x"), DataError, fields="a")
    assert message == "Cannot mask value of type: class [B"


def test_extract_of_an_absent_key_returns_a_tombstone() -> None:
    made = apply("ExtractField$Value", record({"a": 1}), field="zz")
    assert (made.value_schema, made.value) == (None, None)


def test_extract_of_an_absent_field_fails() -> None:
    assert (
        failing("ExtractField$Value", one(INT32, 1), IllegalArgumentError, field="zz")
        == "Unknown field: zz"
    )


def test_extract_accepts_a_path_or_a_name_with_dots() -> None:
    options = {"field": "`a.b`.c", "field__syntax__version": "v2"}
    assert apply("ExtractField$Value", record({"a.b": {"c": 5}}), **options).value == 5
    assert apply("ExtractField$Value", record({"a.b": 5}), field="a.b").value == 5
    inside = struct(("x", INT32))
    nested = record(Struct(struct(("a", inside)), [Struct(inside, [7])]))
    made = apply("ExtractField$Value", nested, field="a.x", field__syntax__version="V2")
    assert (made.value_schema, made.value) == (INT32, 7)
    message = failing(
        "ExtractField$Value", record({"a": 1}), DataError, field="a.b", field__syntax__version="V2"
    )
    assert "[nested field access]" in message
    assert "Incomplete backtick pair in path: [`a]" in refused(
        "ExtractField$Value", field="`a", field__syntax__version="V2"
    )


def test_flatten_of_a_null_struct_returns_null_fields() -> None:
    inside = struct(("x", INT32), ("y", Schema(Type.INT32, default=5)), optional=True)
    made = apply(
        "Flatten$Value", record(Struct(struct(("in", inside), ("z", STRING)), [None, "q"]))
    )
    assert made.value.values == [None, None, "q"]
    assert made.value_schema == struct(
        ("in.x", OPTIONAL_INT32),
        ("in.y", Schema(Type.INT32, optional=True, default=5)),
        ("z", STRING),
    )


def test_flatten_of_maps_joins_keys_and_preserves_arrays() -> None:
    given = record({"a": {"b": 1, "c": {}}, "d": [{"x": 1}], "n": None})
    assert apply("Flatten$Value", given, delimiter="_").value == {
        "a_b": 1,
        "d": [{"x": 1}],
        "n": None,
    }


def test_flatten_of_an_optional_struct_makes_all_fields_optional() -> None:
    made = apply("Flatten$Value", record(Struct(struct(("b", INT32), optional=True), [1])))
    assert made.value_schema == struct(("b", OPTIONAL_INT32))


def test_flatten_refuses_maps_inside_records_with_schemas() -> None:
    message = failing("Flatten$Value", one(map_of(STRING, INT32), {}, "m"), DataError)
    assert (
        message
        == "Flatten transformation does not support MAP for record with schemas (for field m)."
    )


def test_timestamp_router_supports_simple_date_format() -> None:
    assert (
        apply("TimestampRouter", record(1), timestamp__format="YYYY-'W'ww DD").topic
        == "topicA-2023-W46 318"
    )
    message = failing("TimestampRouter", record(1, at=None), DataError)
    assert message.startswith("Timestamp missing on record: ")
    assert "Illegal pattern character" in refused("TimestampRouter", timestamp__format="b")


def test_hoist_wraps_a_value_in_one_field() -> None:
    assert apply("HoistField$Value", record(None), field="f").value == {"f": None}
    made = apply("HoistField$Value", record("x", STRING), field="f")
    assert (made.value_schema, made.value.values) == (struct(("f", STRING)), ["x"])
    failing("HoistField$Value", record(None, STRING), DataError, field="f")


def test_timestamp_converter_parses_strings_leniently() -> None:
    def read(text: str, pattern: str) -> Any:
        given = record(text, STRING)
        return apply(
            "TimestampConverter$Value", given, target__type="Timestamp", format=pattern
        ).value

    assert read("2024-13-45 trailing", "yyyy-MM-dd") == 1_739_491_200_000
    assert read("2024-01-02T03:04:05.123456", "yyyy-MM-dd'T'HH:mm:ss.SSSSSS") == 1_704_164_768_456
    given = record("nonsense", STRING)
    message = failing(
        "TimestampConverter$Value", given, DataError, target__type="unix", format="yyyy"
    )
    assert message == "Could not parse timestamp: value (nonsense) does not match pattern (yyyy)"


@pytest.mark.parametrize(
    ("schema", "value", "options", "expected"),
    [
        (INT64, -1500, {"target__type": "Timestamp", "unix__precision": "microseconds"}, -1),
        (timestamp(), -1500, {"target__type": "unix", "unix__precision": "seconds"}, -1),
        (
            timestamp(),
            253_402_300_799_000,
            {"target__type": "unix", "unix__precision": "nanoseconds"},
            2**63 - 1,
        ),
        (timestamp(), -1, {"target__type": "Date"}, -1),
        (timestamp(), -1, {"target__type": "Time"}, 86_399_999),
        (date(), 1, {"target__type": "unix"}, 86_400_000),
        (time(), 5, {"target__type": "string", "format": "HH:mm:ss.SSS"}, "00:00:00.005"),
    ],
)
def test_timestamp_converter_converts_between_representations(
    schema: Schema, value: int, options: dict[str, str], expected: Any
) -> None:
    assert apply("TimestampConverter$Value", record(value, schema), **options).value == expected


def test_timestamp_converter_rejects_other_types() -> None:
    message = failing(
        "TimestampConverter$Value", record(5, INT32), ConnectError, target__type="Timestamp"
    )
    assert message == "Schema Schema{INT32} does not correspond to a known timestamp type format"
    given = record({"f": True})
    message = failing(
        "TimestampConverter$Value", given, DataError, field="f", target__type="Timestamp"
    )
    assert (
        message
        == "TimestampConverter does not support class java.lang.Boolean objects as timestamps"
    )
    made = apply("TimestampConverter$Value", record({"a": 1}), field="f", target__type="Timestamp")
    assert made.value == {"a": 1, "f": None}


def test_timestamp_converter_drops_schema_names_of_other_types() -> None:
    options = {"field": "f", "target__type": "Timestamp", "unix__precision": "microseconds"}
    made = apply("TimestampConverter$Value", one(MICRO, 1_700_000_000_123_456, "f"), **options)
    assert made.value.values == [NOW]
    assert made.value_schema == struct(("f", timestamp(optional=True)))


def test_timestamp_converter_needs_a_format_for_texts() -> None:
    text = "TimestampConverter requires format option to be specified when using string timestamps"
    assert text in refused("TimestampConverter$Value", target__type="string")
    assert "String must be one of: string, unix" in refused(
        "TimestampConverter$Value", target__type="date"
    )
    failing("TimestampConverter$Value", record("x", STRING), NullPointerError, target__type="unix")


def test_header_from_appends_moved_fields_after_headers_of_the_same_name() -> None:
    given = SinkRecord(
        "topicA",
        3,
        None,
        "k",
        struct(("b", OPTIONAL_INT32)),
        Struct(struct(("b", OPTIONAL_INT32)), [1]),
        NOW,
        Headers([Header("h", "old")]),
        origin=RecordOrigin("topicA", 3, 42),
    )
    made = apply("HeaderFrom$Value", given, fields="b", headers="h", operation="move")
    assert made.value == Struct(struct())
    assert list(made.headers) == [Header("h", "old"), Header("h", 1, OPTIONAL_INT32)]


def test_header_from_an_absent_field_is_null_or_an_error() -> None:
    options = {"fields": "zz", "headers": "h", "operation": "copy"}
    assert list(apply("HeaderFrom$Value", record({"a": 1}), **options).headers) == [
        Header("h", None)
    ]
    failing("HeaderFrom$Value", one(INT32, 1), NullPointerError, **options)
    message = refused("HeaderFrom$Value", fields="a,b", headers="h", operation="copy")
    assert "'fields' config must have the same number of elements as 'headers' config." in message


def test_value_to_key_selects_fields_in_configured_order() -> None:
    made = apply("ValueToKey", record({"a": 1}), fields="zz")
    assert (made.key, made.partition) == ({"zz": None}, 3)
    assert (
        failing("ValueToKey", one(INT32, 1), DataError, fields="zz") == "Field does not exist: zz"
    )
    failing("ValueToKey", record(None), DataError, fields="zz")
    made = apply(
        "ValueToKey", record(Struct(struct(("a", INT32), ("b", STRING)), [1, "x"])), fields="b,a"
    )
    assert (made.key_schema, made.key.values) == (struct(("b", STRING), ("a", INT32)), ["x", 1])


def test_headers_are_inserted_with_inferred_types_and_dropped_by_name() -> None:
    made = apply("InsertHeader", record(1), header="n", value__literal="1234")
    assert list(made.headers) == [Header("n", 1234, INT16)]
    dropped = apply("DropHeaders", made, headers="x,n")
    assert list(dropped.headers) == []


def test_set_schema_metadata_changes_name_and_version_of_schemas() -> None:
    schema = struct(
        ("a", Schema(Type.INT32, optional=True, default=3)), optional=True, name="old", version=1
    )
    made = apply(
        "SetSchemaMetadata$Value",
        record(Struct(schema, [None])),
        schema__name="new",
        schema__version="7",
    )
    assert (made.value_schema, made.value.values) == (schema.replace(name="new", version=7), [3])
    assert apply(
        "SetSchemaMetadata$Value", record(1, INT32), schema__name="n"
    ).value_schema == Schema(Type.INT32, name="n")
    assert apply("SetSchemaMetadata$Value", record(None), schema__name="n").value is None
    message = failing("SetSchemaMetadata$Value", record({"a": 1}), DataError, schema__name="n")
    assert message == "Schema required for [updating schema metadata]"
    assert "Neither schema name nor version configured" in refused("SetSchemaMetadata$Value")


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ("yyyy-MM-dd HH:mm:ss.SSS", "2023-11-14 22:13:20.123"),
        ("yy/M/d h:m a", "23/11/14 10:13 PM"),
        ("EEEE, d MMMM yyyy G", "Tuesday, 14 November 2023 AD"),
        ("EEE MMM", "Tue Nov"),
        ("D w W F u", "318 46 3 2 2"),
        ("kk KK", "22 10"),
        ("z Z X", "UTC +0000 Z"),
        ("''yyyy'T'", "'2023T"),
    ],
)
def test_timestamps_are_formatted_by_javas_date_pattern(pattern: str, text: str) -> None:
    assert java_date_format(pattern).format(NOW) == text


@pytest.mark.parametrize(
    ("pattern", "text", "expected"),
    [
        ("yyyyMMddHHmmss", "20231114221320", 1_700_000_000_000),
        ("yyyy-MM-dd'T'HH:mm:ssX", "2023-11-14T23:13:20+01:00", 1_700_000_000_000),
        ("d MMM yy", "14 nov 23", 1_699_920_000_000),
        ("hh:mm a", "12:30 AM", 1_800_000),
        ("yyyy-DDD", "2024-366", 1_735_603_200_000),
    ],
)
def test_texts_are_parsed_by_javas_date_pattern(pattern: str, text: str, expected: int) -> None:
    assert java_date_format(pattern).parse(text) == expected


@pytest.mark.parametrize("pattern", ["b", "'open", "XXXX"])
def test_patterns_that_java_refuses_are_refused(pattern: str) -> None:
    with pytest.raises(JavaDateFormatError):
        java_date_format(pattern)


def test_days_before_1582_use_the_julian_calendar() -> None:
    assert java_date_format("yyyy-MM-dd").format(-12_219_292_800_000 - 1) == "1582-10-04"
    assert java_date_format("yyyy-MM-dd").parse("1582-10-04") == -12_219_292_800_000 - 86_400_000


def test_nulls_of_several_schemas_go_by_rows() -> None:
    tombstone = record(None)
    (batch,) = Batch.of([one(INT32, 1), tombstone])
    with pytest.raises(NotColumnar):
        configured({"type": f"{KAFKA}.HoistField$Value", "field": "f"}).apply_batch(batch)


def test_names_of_moments_are_those_of_connect() -> None:
    assert (
        apply(
            "TimestampConverter$Value", record(1, INT64), target__type="Timestamp"
        ).value_schema.name
        == TIMESTAMP
    )  # type: ignore[union-attr] # it has one


def test_texts_of_optional_fields_stay_optional() -> None:
    made = apply(
        "TimestampConverter$Value",
        record(NOW, timestamp(optional=True)),
        target__type="string",
        format="yyyy",
    )
    assert (made.value_schema, made.value) == (OPTIONAL_STRING, "2023")
