"""The whole contract of the fast path: a batch form gives, row for row, what the row form gives."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transforms_chain import configured
from transforms_records import check, check_batch, records

from connect_py.api.batch import Batch
from connect_py.api.errors import BadRows, NotColumnar
from connect_py.api.record import SinkRecord

EXAMPLES = settings(deadline=None, max_examples=2000)
DEBEZIUM = "io.debezium.transforms"
ICEBERG = "org.apache.iceberg.connect.transforms"
pytestmark = pytest.mark.timeout(240)  # 2,000 examples each

MODES = ["drop", "tombstone", "rewrite", "rewrite-with-tombstone", "delete-to-tombstone"]
unwrap_options = st.fixed_dictionaries(
    {},
    optional={
        "delete.tombstone.handling.mode": st.sampled_from(MODES),
        "add.fields": st.sampled_from(
            ["op,table,source.ts_ms,lsn,total_order,nosuch", "source:src,transaction:tx", "op:__deleted"]
        ),
        "add.headers": st.sampled_from(["op", "op:drop", "source.snapshot,transaction.id,ts_ms:when,source:src"]),
        "route.by.field": st.sampled_from(["tgt", "id", "nosuch"]),
        "drop.fields.header.name": st.just("drop"),
        "drop.fields.from.key": st.sampled_from(["true", "false"]),
        "drop.fields.keep.schema.compatible": st.sampled_from(["true", "false"]),
        "replace.null.with.default": st.sampled_from(["true", "false"]),
    },
)
legacy_options = st.fixed_dictionaries({
    "drop.tombstones": st.sampled_from(["true", "false"]),
    "delete.handling.mode": st.sampled_from(["drop", "rewrite", "none"]),
})  # fmt: skip


@EXAMPLES
@given(unwrap_options | legacy_options, records())
def test_unwrapping_a_batch_equals_unwrapping_its_rows(
    options: dict[str, str], given_records: list[SinkRecord]
) -> None:
    check({"type": "io.debezium.transforms.ExtractNewRecordState", **options}, given_records)


@EXAMPLES
@given(st.sampled_from([{}, {"cdc.target.pattern": "lake.{table}_{db}"}]), records())
def test_icebergs_debezium_transform_of_a_batch_equals_that_of_its_rows(
    options: dict[str, str], given_records: list[SinkRecord]
) -> None:
    check({"type": "org.apache.iceberg.connect.transforms.DebeziumTransform", **options}, given_records)


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


@EXAMPLES
@given(SIDES, insertions, records())
def test_inserting_columns_equals_inserting_fields(
    side: str, options: dict[str, str], given_records: list[SinkRecord]
) -> None:
    if "static.value" in options:
        options = {**options, "static.field": "static"}
    check({"type": f"org.apache.kafka.connect.transforms.InsertField${side}", **options}, given_records)


@EXAMPLES
@given(SIDES, replacements, records())
def test_replacing_columns_equals_replacing_fields(
    side: str, options: dict[str, str], given_records: list[SinkRecord]
) -> None:
    check({"type": f"org.apache.kafka.connect.transforms.ReplaceField${side}", **options}, given_records)


@EXAMPLES
@given(st.sampled_from(MODES), replacements, insertions, records())
def test_a_chain_over_columns_equals_the_chain_over_rows(
    mode: str, replaced: dict[str, str], inserted: dict[str, str], given_records: list[SinkRecord]
) -> None:
    """Nulls that an earlier transformation made keep their schema through later ones."""
    kafka = "org.apache.kafka.connect.transforms"
    first = configured({
        "type": "io.debezium.transforms.ExtractNewRecordState", "delete.tombstone.handling.mode": mode,
    })  # fmt: skip
    for batch in Batch.of(given_records):
        try:
            unwrapped = first.apply_batch(batch)
        except (NotColumnar, BadRows):
            continue
        for made in unwrapped:
            check_batch({"type": f"{kafka}.ReplaceField$Value", **replaced}, made)
            options = {**inserted, **({"static.field": "static"} if "static.value" in inserted else {})}
            check_batch({"type": f"{kafka}.InsertField$Value", **options}, made)


routers = st.sampled_from(
    [("s\\.(.*)\\.(.*)", "$1_$2"), ("s", "x"), ("(s).*", "$2"), ("(?<a>s).*", "${a}"), ("s.*", "${a}")]
)


@EXAMPLES
@given(routers, records())
def test_routing_a_batch_equals_routing_its_rows(router: tuple[str, str], given_records: list[SinkRecord]) -> None:
    regex, replacement = router
    check(
        {"type": "org.apache.kafka.connect.transforms.RegexRouter", "regex": regex, "replacement": replacement},
        given_records,
    )


others = st.sampled_from([
    {"type": f"{DEBEZIUM}.ExtractChangedRecordState", "header.changed.name": "h", "header.unchanged.name": "u"},
    {"type": f"{DEBEZIUM}.ExtractChangedRecordState", "header.unchanged.name": "u"},
    {"type": f"{DEBEZIUM}.ByLogicalTableRouter", "topic.regex": "s\\.(.*)\\.t", "topic.replacement": "all.$1"},
    {"type": f"{DEBEZIUM}.ToLogicalTopicRouter", "topic.regex": ".*", "topic.replacement": "all",
     "key.enforce.uniqueness": "false"},
    {"type": f"{DEBEZIUM}.TimezoneConverter", "converted.timezone": "Europe/Berlin", "exclude.list": "source:u"},
    {"type": f"{DEBEZIUM}.TimezoneConverter", "converted.timezone": "+02:00"},
    {"type": "io.confluent.connect.transforms.TombstoneHandler", "behavior": "ignore"},
    {"type": "io.confluent.connect.transforms.TombstoneHandler", "behavior": "fail"},
    {"type": f"{ICEBERG}.CopyValue", "source.field": "op", "target.field": "kind"},
    {"type": f"{ICEBERG}.CopyValue", "source.field": "source", "target.field": "origin"},
    {"type": f"{ICEBERG}.CopyValue", "source.field": "nosuch", "target.field": "op"},
    {"type": f"{ICEBERG}.KafkaMetadataTransform"},
    {"type": f"{ICEBERG}.KafkaMetadataTransform", "nested": "true", "field_name": "m", "external_field": "env,x"},
])  # fmt: skip


@EXAMPLES
@given(others, records())
def test_other_vendors_columns_equal_their_rows(props: dict[str, str], given_records: list[SinkRecord]) -> None:
    check(props, given_records)
