"""Debezium's and Iceberg's transformations compared with the original classes, on generated
records.

Every difference is listed here, with its name in docs/compatibility.md; differences that no longer
exist must be removed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import pytest
from java_differences import (
    Difference,
    Known,
    changed,
    check,
    configured,
    differences,
    error_texts,
    own_errors,
    undocumented,
)
from java_plugins import JavaPlugins, Node
from transforms_documents import TOPIC, Documents, event
from transforms_records import Events
from transforms_rows import Rows
from transforms_vendors import TYPED_HEADERS, VendorRecords

from connect_py.api.plugin import PluginKind
from connect_py.api.record import Header, Headers, SinkRecord

DEBEZIUM: Final = "io.debezium.transforms"
MONGODB: Final = "io.debezium.connector.mongodb.transforms"
ICEBERG: Final = "org.apache.iceberg.connect.transforms"
pytestmark = pytest.mark.timeout(300)
Configs = list[dict[str, str]]

MODE: Final = "delete.tombstone.handling.mode"
MODES: Final = ["drop", "tombstone", "rewrite", "rewrite-with-tombstone", "delete-to-tombstone"]
UNWRAP: Final[Configs] = [
    *[{MODE: mode} for mode in MODES],
    {"add.fields": "op,table,source.ts_ms,lsn,total_order,nosuch"},
    {"add.fields": "source:src,op:__deleted"},
    {"add.headers": "op", MODE: "rewrite-with-tombstone"},
    {"add.headers": "source:src,ts_ms:when,transaction.id"},
    {"route.by.field": "tgt"},
    {"route.by.field": "id"},
    {"route.by.field": "nosuch"},
    {"drop.fields.header.name": "drop"},
    {
        "drop.fields.header.name": "drop",
        "drop.fields.from.key": "true",
        "drop.fields.keep.schema.compatible": "false",
    },
    {
        "replace.null.with.default": "false",
        MODE: "rewrite",
        "add.fields.prefix": "",
        "add.fields": "lsn",
    },
]
EVENTS: Final[list[tuple[str, Configs]]] = [
    (f"{DEBEZIUM}.ExtractNewRecordState", UNWRAP),
    (
        f"{DEBEZIUM}.ExtractChangedRecordState",
        [
            {"header.changed.name": "h", "header.unchanged.name": "u"},
            {"header.changed.name": "c"},
            {},
        ],
    ),
    (
        f"{DEBEZIUM}.ByLogicalTableRouter",
        [
            {"topic.regex": r"s\.(.*)\.t", "topic.replacement": "all.$1"},
            {
                "topic.regex": ".*",
                "topic.replacement": "a-1.2b",
                "key.enforce.uniqueness": "false",
                "schema.name.adjustment.mode": "avro",
            },
            {
                "topic.regex": ".*",
                "topic.replacement": "1_é",
                "schema.name.adjustment.mode": "avro_unicode",
            },
            {
                "topic.regex": ".*",
                "topic.replacement": "all",
                "key.field.name": "k",
                "key.field.regex": r"s\.(.*)\..*",
                "key.field.replacement": "$1",
            },
            {"topic.regex": "(s).*", "topic.replacement": "$2"},
            {"topic.regex": "x", "topic.replacement": "y"},
        ],
    ),
    ("io.debezium.connector.mysql.transforms.ReadToInsertEvent", [{}]),
    (f"{ICEBERG}.DebeziumTransform", [{}, {"cdc.target.pattern": "lake.{table}_{db}"}]),
    (
        f"{ICEBERG}.CopyValue",
        [
            {"source.field": "op", "target.field": "kind"},
            {"source.field": "source", "target.field": "op"},
            {"source.field": "text", "target.field": "nosuch"},
        ],
    ),
    (
        f"{ICEBERG}.KafkaMetadataTransform",
        [
            {},
            {"nested": "true", "field_name": "m", "external_field": "env,x"},
            {"external_field": "a,b"},
        ],
    ),
]
HEADERS: Final[Configs] = [
    {"headers": "h", "fields": field, "operation": operation}
    for field in ("new", "op", "source.x", "nosuch.x", "source.table")
    for operation in ("copy", "move")
] + [{"headers": "h,drop,n", "fields": "a,b,source.c", "operation": "move"}]
ZONES: Final[Configs] = [
    {"converted.timezone": "Europe/Berlin"},
    {"converted.timezone": "+02:00", "exclude.list": "source:u"},
    {"converted.timezone": "America/New_York", "include.list": "source:t:us"},
    {"converted.timezone": "Asia/Kolkata", "exclude.list": "t:ns"},
    {"converted.timezone": "UTC", "include.list": "topic:s.public.t:ms"},
]
PLACED: Final = "fields.additional.placement"
OUTBOXES: Final[Configs] = [
    {f"table.{PLACED}": "shard:partition", **more}
    for more in (
        {},
        {"table.expand.json.payload": "true"},
        {"route.tombstone.on.empty.payload": "true"},
        {"table.expand.json.payload": "true", "table.json.payload.null.behavior": "optional_bytes"},
        {"table.field.event.timestamp": "us"},
        {"table.field.event.timestamp": "plain"},
        {"table.field.event.timestamp": "type"},
        {"table.field.event.key": "nosuch"},
        {"table.field.event.payload": "nosuch"},
        {"route.by.field": "shard"},
        {"route.by.field": "type"},
        {"table.op.invalid.behavior": "fatal"},
        {"route.topic.regex": "(?<x>O).*", "route.topic.replacement": "${x}-t"},
        {
            f"table.{PLACED}": "shard:partition,type:header:kind,version:envelope:v,us:envelope",
            "table.field.event.schema.version": "version",
        },
        {
            f"table.{PLACED}": "shard:partition,nosuch:envelope",
            "table.field.additional.missing": "ignore",
        },
        {f"table.{PLACED}": "shard:partition,nosuch:header"},
        {f"table.{PLACED}": "type:partition"},
    )
] + [{}]
DOCUMENTS: Final[Configs] = [
    {},
    {"array.encoding": "document"},
    {"flatten.struct": "true"},
    {"add.fields": "op,collection,updateDescription"},
    {
        "flatten.struct": "true",
        "flatten.struct.delimiter": ".",
        "array.encoding": "document",
        MODE: "rewrite",
    },
    {
        MODE: "rewrite",
        f"{MODE}.rewrite-with-id": "true",
        "add.fields": "op,source.ord",
        "add.headers": "op:kind",
    },
    {MODE: "rewrite-with-tombstone", "add.headers": "op,db"},
    {MODE: "drop"},
    {MODE: "delete-to-tombstone"},
    {"field.name.adjustment.mode": "avro"},
    {"field.name.adjustment.mode": "avro_unicode", "add.fields": "op"},
]
ODD_DOCUMENTS: Final = [
    '{"a": [1, null]}',
    '{"a": [[], [1]]}',
    '{"a": [{"x": {"y": 1}}, {"x": {"z": 2}}]}',
    '{"": 1}',
    '{"a": {"$minKey": 1}, "b": 1}',
    '{"a": [1, "x"]}',
    '{"a": [{"x": 1}, {"x": "s"}]}',
    '{"a": {"$timestamp": {"t": 4294967295, "i": 1}}}',
    '{"a": {"$code": "f", "$scope": {"x": 1}}}',
    "{}",
    "not json",
    '{"a": 1} x',
    '{"a": {"b": {}}}',
    '{"a": [{"$regex": "x", "$options": ""}]}',
    '{"a": {"$oid": "XX"}}',
    '{"a": [{"x": []}, {"x": [1]}]}',
    '{"a": [[{"x": 1}]]}',
    '{"a": [[[1]]]}',
    '{"a": [{"b": {}}]}',
    '{"a": [{}]}',
]
REFUSED: Final = [
    (f"{DEBEZIUM}.ExtractNewRecordState", {MODE: "x"}),
    (f"{MONGODB}.ExtractNewDocumentState", {"array.encoding": "x"}),
    (f"{DEBEZIUM}.ByLogicalTableRouter", {"topic.regex": ".*", "topic.replacement": ""}),
    (f"{DEBEZIUM}.ByLogicalTableRouter", {"topic.regex": "(", "topic.replacement": "x"}),
    (
        f"{DEBEZIUM}.ByLogicalTableRouter",
        {"topic.regex": "x", "topic.replacement": "x", "key.field.regex": "a"},
    ),
    (f"{DEBEZIUM}.HeaderToValue", {"headers": "h", "fields": "a,b", "operation": "copy"}),
    (f"{DEBEZIUM}.HeaderToValue", {"headers": "h", "fields": "a", "operation": "x"}),
    (f"{DEBEZIUM}.HeaderToValue", {}),
    (f"{DEBEZIUM}.TimezoneConverter", {"converted.timezone": "Mars"}),
    (f"{DEBEZIUM}.TimezoneConverter", {}),
    (
        f"{DEBEZIUM}.TimezoneConverter",
        {"converted.timezone": "UTC", "include.list": "a", "exclude.list": "b"},
    ),
    (f"{DEBEZIUM}.SchemaChangeEventFilter", {}),
    (f"{DEBEZIUM}.outbox.EventRouter", {f"table.{PLACED}": "a"}),
    (f"{DEBEZIUM}.outbox.EventRouter", {"route.topic.regex": "("}),
    (f"{DEBEZIUM}.outbox.EventRouter", {"table.op.invalid.behavior": "x"}),
    (f"{MONGODB}.outbox.MongoEventRouter", {f"collection.{PLACED}": "a"}),
    (f"{ICEBERG}.CopyValue", {"source.field": "a"}),
    (f"{ICEBERG}.KafkaMetadataTransform", {"external_field": "a"}),
]


def _made_of_failure(found: Difference) -> bool:
    return "failed" in found.java and "made" in found.ours


def _blocks(found: Difference) -> bool:
    asked = "source:src" in str(found.configs) or "updateDescription" in str(found.configs)
    return asked and (found.java_text == "Struct schemas do not match." or "made" in found.java)


def _bare_deletes(found: Difference) -> bool:
    is_unwrap = found.plugin == "ExtractNewRecordState"
    return (
        is_unwrap and found.java == {"made": None} and found.ours["made"]["value"] == [None, None]
    )


def _events_without_rows(found: Difference) -> bool:
    return (
        found.plugin == "DebeziumTransform" and found.java_class == "java.lang.NullPointerException"
    )


def _untyped_headers(found: Difference) -> bool:
    return found.plugin == "HeaderToValue" and "fieldSchema for field" in found.java_text


def _no_changes(found: Difference) -> bool:
    return found.java == {"made": None} and found.given.value["tableChanges"] is None  # type: ignore[attr-defined] # a record


def _nulls_in_arrays(found: Difference) -> bool:
    def untold(node: Node) -> Node:
        return None if node == ["text", "null"] else node

    return found.plugin == "JsonToMapTransform" and changed(found.java, untold) == changed(
        found.ours, untold
    )


def _no_partition(found: Difference) -> bool:
    return not found.configs and "kafkaPartition" in found.java_text


def _first_kind(found: Difference) -> bool:
    def nameless(node: Node) -> Node:
        is_event = isinstance(node, dict) and str(node.get("name")).startswith("s.public.outbox.")
        return {**node, "name": None} if is_event else node

    return found.plugin == "EventRouter" and changed(found.java, nameless) == changed(
        found.ours, nameless
    )


def _half_expanded(found: Difference) -> bool:
    """A schema was guessed that the payload does not have; or the order of members of merged
    objects."""
    if "table.expand.json.payload" not in found.configs or "made" not in found.java:
        return False
    payload = found.given.value["after"]["payload"]  # type: ignore[attr-defined] # a record of an outbox
    schema, value = found.java["made"]["value"]
    kept_text = value == ["text", payload] and (schema is None or schema["type"] != "STRING")
    return kept_text or _sorted(found.java) == _sorted(found.ours)


def _sorted(node: Node) -> str:
    """The tree without order and optional flags."""
    if isinstance(node, dict):
        return str(sorted((k, _sorted(v)) for k, v in node.items() if k != "optional"))
    return str(sorted(map(_sorted, node))) if isinstance(node, list) else str(node)


def _plain_names(node: Node) -> Node:
    """Schemas of documents inside documents without names."""
    if not isinstance(node, dict) or node.get("type") != "STRUCT" or not node["name"]:
        return node
    inside = node["name"].startswith(("null.", f"{TOPIC}.", "io.debezium.data.Json."))
    return (
        {**node, "name": None}
        if inside and not node["name"].endswith((".Key", ".Envelope"))
        else node
    )


def _names_inside(found: Difference) -> bool:
    return changed(found.java, _plain_names) == changed(found.ours, _plain_names)


def _empty_arrays(found: Difference) -> bool:
    def fewer(node: Node) -> Node:
        return None if node == ["list", []] else _plain_names(node)

    is_adjusted = "field.name.adjustment.mode" in found.configs
    return is_adjusted and changed(found.java, fewer) == changed(found.ours, fewer)


def _unlike_items(found: Difference) -> bool:
    """Java fails by accident, or leaves nulls and empty arrays out of arrays."""

    def full(node: Node) -> Node:
        is_list = isinstance(node, list) and node[:1] == ["list"]
        return (
            ["list", [item for item in node[1] if item not in (None, ["list", []])]]
            if is_list
            else node
        )

    if found.plugin not in ("ExtractNewDocumentState", "MongoDebeziumTransform"):
        return False
    return _made_of_failure(found) or changed(found.java, full) == changed(found.ours, full)


def _scoped_code(found: Difference) -> bool:
    return found.plugin == "MongoDebeziumTransform" and "$scope" in str(found.given)


def _late_timestamps(found: Difference) -> bool:
    return "4294967295" in str(found.given)


def _empty_updates(found: Difference) -> bool:
    if found.plugin != "ExtractNewDocumentState" or "made" not in found.java:
        return False
    given: Any = found.given
    tells_nothing = all(
        given.value[name] is None for name in ("before", "after", "updateDescription")
    )
    return given.value["after"] == "{}" or (given.value["op"] == "u" and tells_nothing)


def _more_text(found: Difference) -> bool:
    return "} x" in str(found.given) and "failed" in found.ours


TEXTS: Final = "texts of `NullPointerException` and its like, and texts that print a record"
OWN_ERRORS: Final = (
    "errors of classes of their own: `DebeziumException`, `JsonToMapException`, those of BSON"
)
COMMON: Final[Known] = {
    TEXTS: error_texts,
    OWN_ERRORS: own_errors,
}
OF_EVENTS: Final[Known] = {
    TEXTS: error_texts,
    "`ExtractNewRecordState` loses a delete event without the row before": _bare_deletes,
    "`add.fields` and `add.headers` of a whole block give structs without fields, or fail": _blocks,
    "Iceberg's `DebeziumTransform` fails on truncations, messages, and sources of no "
    "schema": _events_without_rows,
}
OF_HEADERS: Final[Known] = {"`HeaderToValue` fails on headers without a schema": _untyped_headers}
OF_CHANGES: Final[Known] = {
    "`SchemaChangeEventFilter` drops events without `tableChanges`": _no_changes
}
OF_TEXTS: Final[Known] = {
    **COMMON,
    "`JsonToMapTransform`: a null in an array becomes the text `null`": _nulls_in_arrays,
}
OF_OUTBOXES: Final[Known] = {
    TEXTS: error_texts,
    "`EventRouter` names the schemas of events with an envelope after the kind of the "
    "first": _first_kind,
    "`EventRouter` fails on sinks unless a column is placed as partition": _no_partition,
    "`EventRouter` with `table.expand.json.payload`: a schema that the payload does not "
    "have": _half_expanded,
}
OF_DOCUMENTS: Final[Known] = {
    **COMMON,
    "MongoDB: names of schemas of documents inside documents": _names_inside,
    "MongoDB: the struct of code with a scope is required": _scoped_code,
    "MongoDB: arrays with nulls, arrays or unlike documents in them fail, as do some "
    "types": _unlike_items,
    "MongoDB: an empty array is null where names are adjusted": _empty_arrays,
    "MongoDB: timestamps after 2038 are negative": _late_timestamps,
    "MongoDB: an event that tells nothing, or of an empty document, becomes a "
    "tombstone": _empty_updates,
    "MongoDB: text after a document is passed over, and forms of MongoDB's shell are "
    "read": _more_text,
    "`add.fields` and `add.headers` of a whole block give structs without fields, or fail": _blocks,
}


@pytest.fixture(scope="module")
def java() -> Iterator[JavaPlugins]:
    with JavaPlugins() as plugins:
        yield plugins


def compared(
    java: JavaPlugins, name: str, configs: Configs, rows: Sequence[SinkRecord]
) -> list[Difference]:
    return [
        found
        for each in configs
        for found in differences(java, "apply", name, PluginKind.TRANSFORMATION, each, rows)
    ]


def many(make: Callable[[VendorRecords, int], SinkRecord], count: int) -> list[SinkRecord]:
    records = VendorRecords(count)
    return [make(records, offset) for offset in range(count)]


def events(seeds: int) -> list[SinkRecord]:
    return [row for n in range(seeds) for row in (Events(n) if n % 5 else Rows(n)).records()]


def test_change_events_are_treated_as_by_javas_classes(java: JavaPlugins) -> None:
    rows = events(14)
    assert len(rows) * sum(len(configs) for _, configs in EVENTS) > 2_000
    check(
        [found for name, configs in EVENTS for found in compared(java, name, configs, rows)],
        OF_EVENTS,
    )


def test_headers_become_fields_as_in_java(java: JavaPlugins) -> None:
    given = [row for row in events(8) if row.value_schema is not None or row.value is None]
    rows = [
        row.replace(headers=Headers(TYPED_HEADERS if n % 3 else ())) for n, row in enumerate(given)
    ]
    # Java uses the schema of the first record
    untyped = [row.replace(headers=Headers([Header("h", "x")])) for row in given]
    name = f"{DEBEZIUM}.HeaderToValue"
    check(
        compared(java, name, HEADERS, rows) + compared(java, name, HEADERS[:1], untyped), OF_HEADERS
    )


def test_times_move_between_zones_as_in_java(java: JavaPlugins) -> None:
    rows = [*many(VendorRecords.moments, 100), *events(8)]
    assert compared(java, f"{DEBEZIUM}.TimezoneConverter", ZONES, rows) == []


def test_schema_changes_are_filtered_as_in_java(java: JavaPlugins) -> None:
    rows = [*many(VendorRecords.schema_change, 50), *events(5)]
    configs = [
        {"schema.change.event.exclude.list": kinds} for kinds in ("DROP", "CREATE,DROP,ALTER")
    ]
    check(compared(java, f"{DEBEZIUM}.SchemaChangeEventFilter", configs, rows), OF_CHANGES)


def test_outboxes_are_routed_as_in_java(java: JavaPlugins) -> None:
    check(
        compared(java, f"{DEBEZIUM}.outbox.EventRouter", OUTBOXES, many(VendorRecords.outbox, 150)),
        OF_OUTBOXES,
    )


def test_texts_and_events_of_dms_are_read_as_in_java(java: JavaPlugins) -> None:
    texts = [*many(VendorRecords.text, 500), *events(4)]
    found = compared(java, f"{ICEBERG}.JsonToMapTransform", [{}, {"json.root": "true"}], texts)
    found += compared(
        java, f"{ICEBERG}.DmsTransform", [{}], [*many(VendorRecords.dms, 300), *events(4)]
    )
    check(found, OF_TEXTS)


def test_documents_are_treated_as_by_javas_classes(java: JavaPlugins) -> None:
    odd = [event("c", text) for text in ODD_DOCUMENTS] + [
        event("u"),
        event("d", key=None),
        event("c", "{}", key="x"),
    ]
    rows = [*odd, *[row for seed in range(40) for row in Documents(seed).records()], *events(2)]
    found = compared(java, f"{MONGODB}.ExtractNewDocumentState", DOCUMENTS, rows)
    modes: Configs = [{"array_handling_mode": mode} for mode in ("array", "document")]
    found += compared(java, f"{ICEBERG}.MongoDebeziumTransform", modes, rows)
    outboxes: Configs = [
        {f"collection.{PLACED}": "p:partition", "collection.expand.json.payload": flag}
        for flag in ("true", "false")
    ]
    payloads = [
        '"x"',
        "null",
        "[1, 2]",
        '{"a": {"b": [{"$date": 5}]}, "ü": true}',
        '{"$numberLong": "5"}',
    ]
    documents = [
        f'{{"_id": 1, "aggregateid": "a", "aggregatetype": "T", "p": 5, "payload": {p}}}'
        for p in payloads
    ]
    found += compared(
        java, f"{MONGODB}.outbox.MongoEventRouter", outboxes, [event("c", d) for d in documents]
    )
    check(found, OF_DOCUMENTS)


@pytest.mark.parametrize(("name", "configs"), REFUSED)
def test_configurations_that_java_refuses_are_refused(
    java: JavaPlugins, name: str, configs: dict[str, str]
) -> None:
    assert "refused" in java.ask("apply", name, configs, [])
    ours: Any = configured(name, PluginKind.TRANSFORMATION, configs)
    assert "refused" in ours


def test_documentation_names_every_known_difference_from_vendors() -> None:
    for known in (OF_EVENTS, OF_HEADERS, OF_CHANGES, OF_TEXTS, OF_OUTBOXES, OF_DOCUMENTS):
        assert undocumented(known) == []
