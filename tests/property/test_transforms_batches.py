"""The contract of the batch form: for every row, it returns the result of the row form."""

from __future__ import annotations

import importlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from transforms_chain import configured, transformation_class
from transforms_records import EXAMPLES, PROVEN, check, check_batch, proves, records
from transforms_vendors import VendorRecords

from connect_py.api.batch import Batch
from connect_py.api.errors import BadRows, NotColumnar
from connect_py.api.plugin import PluginKind
from connect_py.api.record import SinkRecord
from connect_py.api.transformation import Transformation
from transforms import PLUGINS

KAFKA = "org.apache.kafka.connect.transforms"
DEBEZIUM = "io.debezium.transforms"
ICEBERG = "org.apache.iceberg.connect.transforms"
pytestmark = pytest.mark.timeout(240)  # 2,000 examples each

MODES = ["drop", "tombstone", "rewrite", "rewrite-with-tombstone", "delete-to-tombstone"]
unwrap_options = st.fixed_dictionaries(
    {},
    optional={
        "delete.tombstone.handling.mode": st.sampled_from(MODES),
        "add.fields": st.sampled_from(
            [
                "op,table,source.ts_ms,lsn,total_order,nosuch",
                "source:src,transaction:tx",
                "op:__deleted",
            ]
        ),
        "add.headers": st.sampled_from(
            ["op", "op:drop", "source.snapshot,transaction.id,ts_ms:when,source:src"]
        ),
        "route.by.field": st.sampled_from(["tgt", "id", "nosuch"]),
        "drop.fields.header.name": st.just("drop"),
        "drop.fields.from.key": st.sampled_from(["true", "false"]),
        "drop.fields.keep.schema.compatible": st.sampled_from(["true", "false"]),
        "replace.null.with.default": st.sampled_from(["true", "false"]),
    },
)
legacy_options = st.fixed_dictionaries(
    {
        "drop.tombstones": st.sampled_from(["true", "false"]),
        "delete.handling.mode": st.sampled_from(["drop", "rewrite", "none"]),
    }
)


@proves(f"{DEBEZIUM}.ExtractNewRecordState")
@given(unwrap_options | legacy_options, records())
def test_unwrapping_a_batch_equals_unwrapping_its_rows(
    options: dict[str, str], given_records: list[SinkRecord]
) -> None:
    check({"type": "io.debezium.transforms.ExtractNewRecordState", **options}, given_records)


@proves(f"{ICEBERG}.DebeziumTransform")
@given(st.sampled_from([{}, {"cdc.target.pattern": "lake.{table}_{db}"}]), records())
def test_iceberg_debezium_transform_batch_form_equals_its_row_form(
    options: dict[str, str], given_records: list[SinkRecord]
) -> None:
    check(
        {"type": "org.apache.iceberg.connect.transforms.DebeziumTransform", **options},
        given_records,
    )


insertions = st.fixed_dictionaries(
    {"topic.field": st.sampled_from(["topic", "t!", "op"])},
    optional={
        "partition.field": st.just("p?"),
        "offset.field": st.just("o!"),
        "timestamp.field": st.sampled_from(["ts", "ts!", "ts_ms"]),
        "static.value": st.just("v"),
        "replace.null.with.default": st.sampled_from(["true", "false"]),
    },
)
replacements = st.fixed_dictionaries(
    {},
    optional={
        "exclude": st.sampled_from(["before", "source,op", "id", "nosuch"]),
        "include": st.sampled_from(["after,op", "nosuch", "id"]),
        "renames": st.sampled_from(["op:kind", "op:ts_ms", "x:op", "ts_ms:op,op:ts_ms", "id:key"]),
        "replace.null.with.default": st.sampled_from(["true", "false"]),
    },
)
SIDES = st.sampled_from(["Key", "Value"])


@proves(f"{KAFKA}.InsertField")
@given(SIDES, insertions, records())
def test_insert_field_batch_form_equals_its_row_form(
    side: str, options: dict[str, str], given_records: list[SinkRecord]
) -> None:
    if "static.value" in options:
        options = {**options, "static.field": "static"}
    check(
        {"type": f"org.apache.kafka.connect.transforms.InsertField${side}", **options},
        given_records,
    )


@proves(f"{KAFKA}.ReplaceField")
@given(SIDES, replacements, records())
def test_replace_field_batch_form_equals_its_row_form(
    side: str, options: dict[str, str], given_records: list[SinkRecord]
) -> None:
    check(
        {"type": f"org.apache.kafka.connect.transforms.ReplaceField${side}", **options},
        given_records,
    )


@EXAMPLES
@given(st.sampled_from(MODES), replacements, insertions, records())
def test_a_chain_over_columns_equals_the_chain_over_rows(
    mode: str, replaced: dict[str, str], inserted: dict[str, str], given_records: list[SinkRecord]
) -> None:
    """Nulls of an earlier transformation keep their schema through later ones."""
    first = configured(
        {
            "type": "io.debezium.transforms.ExtractNewRecordState",
            "delete.tombstone.handling.mode": mode,
        }
    )
    for batch in Batch.of(given_records):
        try:
            unwrapped = first.apply_batch(batch)
        except (NotColumnar, BadRows):
            continue
        for made in unwrapped:
            check_batch({"type": f"{KAFKA}.ReplaceField$Value", **replaced}, made)
            options = {
                **inserted,
                **({"static.field": "static"} if "static.value" in inserted else {}),
            }
            check_batch({"type": f"{KAFKA}.InsertField$Value", **options}, made)


routers = st.sampled_from(
    [
        ("s\\.(.*)\\.(.*)", "$1_$2"),
        ("s", "x"),
        ("(s).*", "$2"),
        ("(?<a>s).*", "${a}"),
        ("s.*", "${a}"),
    ]
)


@proves(f"{KAFKA}.RegexRouter")
@given(routers, records())
def test_routing_a_batch_equals_routing_its_rows(
    router: tuple[str, str], given_records: list[SinkRecord]
) -> None:
    regex, replacement = router
    check(
        {
            "type": "org.apache.kafka.connect.transforms.RegexRouter",
            "regex": regex,
            "replacement": replacement,
        },
        given_records,
    )


CONFLUENT = "io.confluent.connect.transforms"
OTHERS = {
    f"{DEBEZIUM}.ExtractChangedRecordState": [
        {"header.changed.name": "h", "header.unchanged.name": "u"},
        {"header.unchanged.name": "u"},
        {},
    ],
    f"{DEBEZIUM}.ByLogicalTableRouter": [
        {"topic.regex": "s\\.(.*)\\.t", "topic.replacement": "all.$1"},
        {"topic.regex": "s.*", "topic.replacement": "1-a", "schema.name.adjustment.mode": "avro"},
        {"topic.regex": "(s).*", "topic.replacement": "$2"},
    ],
    f"{DEBEZIUM}.ToLogicalTopicRouter": [
        {"topic.regex": ".*", "topic.replacement": "all", "key.enforce.uniqueness": "false"},
        {"topic.regex": ".*", "topic.replacement": "all", "key.field.name": "id"},
        {"topic.regex": "x", "topic.replacement": "all"},
    ],
    f"{DEBEZIUM}.TimezoneConverter": [
        {"converted.timezone": "Europe/Berlin", "exclude.list": "source:u"},
        {"converted.timezone": "+02:00"},
        {"converted.timezone": "America/New_York", "include.list": "t:us,zoned,default"},
    ],
    f"{CONFLUENT}.TombstoneHandler": [
        {"behavior": behavior} for behavior in ("ignore", "fail", "warn")
    ],
    f"{ICEBERG}.CopyValue": [
        {"source.field": "op", "target.field": "kind"},
        {"source.field": "source", "target.field": "origin"},
        {"source.field": "nosuch", "target.field": "op"},
    ],
    f"{ICEBERG}.KafkaMetadataTransform": [
        {},
        {"nested": "true", "field_name": "m", "external_field": "env,x"},
        {"field_name": "op"},
    ],
}


def moments(seed: int) -> list[SinkRecord]:
    made = VendorRecords(seed)
    return [made.moments(offset) for offset in range(seed % 7 + 1)]


@proves(*OTHERS, configs=3)
@given(records() | st.builds(moments, st.integers(0, 2**32)))
def test_other_vendors_columns_equal_their_rows(given_records: list[SinkRecord]) -> None:
    batches = Batch.of(given_records)
    for name, configs in OTHERS.items():
        for options in configs:
            for batch in batches:
                check_batch({"type": name, **options}, batch)


def test_every_transformation_with_a_batch_form_has_a_property_test() -> None:
    importlib.import_module("test_transforms_stock_batches")  # its tests register themselves
    batched = {
        plugin.name: plugin.python
        for plugin in PLUGINS
        if plugin.kind is PluginKind.TRANSFORMATION
        and transformation_class(plugin.name).apply_batch is not Transformation.apply_batch
    }
    proven = {python for name, python in batched.items() if name.partition("$")[0] in PROVEN}
    assert [name for name, python in batched.items() if python not in proven] == []
    assert {name.partition("$")[0] for name in batched} >= PROVEN
