"""Built-in transformations: for every row, the batch form returns the result of the row form."""

from __future__ import annotations

import pytest
from example_counts import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from transforms_records import EXAMPLES, check, proves, records
from transforms_rows import FIELDS, Rows

from connect_py.api.record import SinkRecord
from connect_py.api.schema import OPTIONAL_STRING, Struct, struct
from connect_py.testing import sink_record

KAFKA = "org.apache.kafka.connect.transforms"
pytestmark = pytest.mark.timeout(240)  # 2,000 examples each

names = st.sampled_from([*FIELDS, "nosuch"])
SIDES = st.sampled_from(["Key", "Value"])
SEEDS = st.integers(0, 2**32)
ROWS = st.builds(lambda seed: Rows(seed).records(), SEEDS) | records()
NULLS = {"replace.null.with.default": st.sampled_from(["true", "false"])}
TYPES = st.sampled_from(
    ["int8", "int16", "int32", "int64", "float32", "float64", "boolean", "string"]
)
specs = st.one_of(
    TYPES,
    st.dictionaries(names, TYPES, min_size=1, max_size=3).map(
        lambda d: ",".join(f"{k}:{v}" for k, v in d.items())
    ),
)
lists = st.lists(names, min_size=1, max_size=3, unique=True).map(",".join)


@proves(f"{KAFKA}.Cast")
@given(SIDES, st.fixed_dictionaries({"spec": specs}, optional=NULLS), ROWS)
def test_cast_batch_form_equals_its_row_form(
    side: str, options: dict[str, str], rows: list[SinkRecord]
) -> None:
    check({"type": f"{KAFKA}.Cast${side}", **options}, rows)


CODE = struct(("code", OPTIONAL_STRING))
numerals = st.from_regex(r"[+-]?[0-9]{1,21}", fullmatch=True) | st.sampled_from(
    ["", "-", "0x1F", " 5", "1.5", "٣", "5\n"]
)


@settings(EXAMPLES, max_examples=examples(500))
@given(
    st.sampled_from(["int8", "int16", "int32", "int64"]),
    st.lists(st.none() | st.integers(-200, 200).map(str) | numerals, min_size=1, max_size=8),
    st.sampled_from(["whole", "map", "struct"]),
    st.booleans(),
)
def test_string_to_number_cast_batch_form_equals_its_row_form(
    kind: str, texts: list[str | None], form: str, schemaless: bool
) -> None:
    if form == "struct":
        rows = [
            sink_record(value=Struct(CODE, [t]), value_schema=CODE, offset=n)
            for n, t in enumerate(texts)
        ]
    elif form == "map":
        rows = [sink_record(value={"code": t}, offset=n) for n, t in enumerate(texts)]
    else:
        schema = None if schemaless else OPTIONAL_STRING
        rows = [sink_record(value=t, value_schema=schema, offset=n) for n, t in enumerate(texts)]
    check(
        {"type": f"{KAFKA}.Cast$Value", "spec": kind if form == "whole" else f"code:{kind}"}, rows
    )


@proves(f"{KAFKA}.MaskField")
@given(
    SIDES,
    st.fixed_dictionaries(
        {"fields": lists},
        optional={**NULLS, "replacement": st.sampled_from(["7", "12.7", "***", "-3e2"])},
    ),
    ROWS,
)
def test_mask_field_batch_form_equals_its_row_form(
    side: str, options: dict[str, str], rows: list[SinkRecord]
) -> None:
    check({"type": f"{KAFKA}.MaskField${side}", **options}, rows)


@proves(f"{KAFKA}.TimestampConverter")
@given(
    SIDES,
    st.fixed_dictionaries(
        {"target.type": st.sampled_from(["string", "unix", "Date", "Time", "Timestamp"])},
        optional={
            **NULLS,
            "field": names,
            "unix.precision": st.sampled_from(
                ["seconds", "milliseconds", "microseconds", "nanoseconds"]
            ),
        },
    ),
    st.sampled_from(["yyyy-MM-dd", "yyyyMMdd HH:mm:ss.SSS"]),
    ROWS,
)
def test_timestamp_converter_batch_form_equals_its_row_form(
    side: str, options: dict[str, str], pattern: str, rows: list[SinkRecord]
) -> None:
    check({"type": f"{KAFKA}.TimestampConverter${side}", "format": pattern, **options}, rows)


@proves(f"{KAFKA}.Flatten")
@given(SIDES, st.sampled_from([".", "_"]), ROWS)
def test_flatten_batch_form_equals_its_row_form(
    side: str, delimiter: str, rows: list[SinkRecord]
) -> None:
    check({"type": f"{KAFKA}.Flatten${side}", "delimiter": delimiter}, rows)


@proves(f"{KAFKA}.ExtractField")
@given(
    SIDES,
    st.fixed_dictionaries(
        {
            "field": names
            | st.sampled_from(
                ["inner.x", "inner.y", "inner.nosuch", "text.x", "after.id", "source"]
            )
        },
        optional={**NULLS, "field.syntax.version": st.sampled_from(["V1", "V2"])},
    ),
    ROWS,
)
def test_extract_field_batch_form_equals_its_row_form(
    side: str, options: dict[str, str], rows: list[SinkRecord]
) -> None:
    check({"type": f"{KAFKA}.ExtractField${side}", **options}, rows)


@proves(f"{KAFKA}.HoistField", f"{KAFKA}.Filter")
@given(SIDES, ROWS)
def test_hoist_field_and_filter_batch_forms_equal_row_forms(
    side: str, rows: list[SinkRecord]
) -> None:
    check({"type": f"{KAFKA}.HoistField${side}", "field": "f"}, rows)
    check({"type": f"{KAFKA}.Filter"}, rows)


@proves(f"{KAFKA}.SetSchemaMetadata")
@given(
    SIDES,
    st.fixed_dictionaries(
        {"schema.name": st.just("n")}, optional={**NULLS, "schema.version": st.just("3")}
    ),
    ROWS,
)
def test_set_schema_metadata_batch_form_equals_its_row_form(
    side: str, options: dict[str, str], rows: list[SinkRecord]
) -> None:
    check({"type": f"{KAFKA}.SetSchemaMetadata${side}", **options}, rows)


@proves(f"{KAFKA}.ValueToKey")
@given(
    st.fixed_dictionaries(
        {"fields": lists | st.sampled_from(["op", "ts_ms,op", "id"])}, optional=NULLS
    ),
    ROWS,
)
def test_value_to_key_batch_form_equals_its_row_form(
    options: dict[str, str], rows: list[SinkRecord]
) -> None:
    check({"type": f"{KAFKA}.ValueToKey", **options}, rows)


@proves(f"{KAFKA}.HeaderFrom")
@given(
    SIDES,
    st.lists(names | st.sampled_from(["op", "source", "id"]), min_size=1, max_size=3),
    st.fixed_dictionaries({"operation": st.sampled_from(["move", "copy"])}, optional=NULLS),
    ROWS,
)
def test_header_from_batch_form_equals_its_row_form(
    side: str, fields: list[str], options: dict[str, str], rows: list[SinkRecord]
) -> None:
    listed = {"fields": ",".join(fields), "headers": ",".join(f"h{n}" for n in range(len(fields)))}
    check({"type": f"{KAFKA}.HeaderFrom${side}", **listed, **options}, rows)


WHOLE = {
    f"{KAFKA}.InsertHeader": [
        {"header": "h", "value.literal": text} for text in ("[1,2]", "x", "1.5")
    ],
    f"{KAFKA}.DropHeaders": [{"headers": "h,x"}, {"headers": "drop"}, {"headers": "h"}],
    f"{KAFKA}.TimestampRouter": [
        {"timestamp.format": "yyyy"},
        {"topic.format": "x-${timestamp}"},
        {},
    ],
}


@proves(*WHOLE, configs=3)
@given(ROWS)
def test_header_and_topic_transformation_batch_forms_equal_row_forms(
    rows: list[SinkRecord],
) -> None:
    for name, configs in WHOLE.items():
        for options in configs:
            check({"type": name, **options}, rows)
