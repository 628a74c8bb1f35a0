"""Pipeline files: mistakes with their lines and hints, what is compiled, and the JSON schema of the
same fields."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from pipeline_files import AUTO, BASE, LISTED, MERGE, MISTAKES, ROUTED, TOPIC, MistakeCase, shop

from connectors.iceberg.config.sink_config import IcebergSinkConfig
from connectors.iceberg.config.topic_rules import topic_rules
from connectors.iceberg_tools.pipeline.file_fields import FILE, json_schema
from connectors.iceberg_tools.pipeline.mistake import Mistake, Mistakes, PipelineFileError
from connectors.iceberg_tools.pipeline.pipeline_file import parse_pipeline
from connectors.iceberg_tools.pipeline.yaml_tree import read_yaml

CATALOG = "type: rest\nuri: http://catalog:8181\ntoken: ${env:TOKEN}"
SHOP = shop(CATALOG)
SCHEMA = jsonschema.Draft202012Validator(json_schema())


def mistakes(text: str) -> list[Mistake]:
    with pytest.raises(PipelineFileError) as found:
        parse_pipeline(text, "shop.yaml")
    return found.value.mistakes


def target(lines: str) -> dict[str, str]:
    """The configuration of one connector."""
    (connector,) = parse_pipeline(MistakeCase(lines, 0, "").text()).connectors.values()
    return dict(connector.config)


@pytest.mark.parametrize("case", MISTAKES.values(), ids=MISTAKES)
def test_each_mistake_has_its_line_and_its_hint(case: MistakeCase) -> None:
    (found,) = mistakes(case.text())
    shown = found.text("shop.yaml")
    assert shown.startswith(f"shop.yaml:{case.line}:")
    assert case.problem in shown
    assert case.hint in found.hint


def test_all_mistakes_of_a_file_come_at_once() -> None:
    text = (
        "pipeline: my shop\nwroker: http://localhost:8083\ndefaults: {format: avr, registry: "
        "7}\ntargets:\n"
        "  a: {topics: [x.y], tables: auto, tasks: none}\n  b: {topics: x.y, tables: [s.t], "
        "unwrap: debezum}\n"
        "  c: {topics-pattern: x, tables: [s.t], connector: shop-b}\n"
    )
    found = [(each.position.line, each.where) for each in mistakes(text)]
    assert found == [
        (1, "pipeline"),
        (2, "wroker"),
        (3, "defaults.format"),
        (3, "defaults.registry"),
        (5, "targets.a.tasks"),
        (6, "targets.b.unwrap"),
        (7, "targets.c.tables[0]"),
    ]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("", "shop.yaml:1:1: the file is empty; expected `pipeline: <name>`"),
        ("- a", "shop.yaml:1:1: is a list, expected a pipeline"),
        ("pipeline: a", "shop.yaml:1:1: lacks `targets`; Connectors by name."),
        ("pipeline: a\ntargets: {}", "shop.yaml:2:10: targets: is an empty mapping"),
        (
            "? [a]\n: b\npipeline: a\ntargets: {b: {topics: x.y, tables: auto}}",
            "shop.yaml:1:3: a key must be a single",
        ),
        (
            f"{SHOP}\n---\na: b\n",
            "shop.yaml:52:1: a second document begins here; write one file per pipeline",
        ),
        ("pipeline: \a", "shop.yaml:1:1: is not YAML"),
    ],
)
def test_file_that_is_no_pipeline_is_refused_whole(text: str, shown: str) -> None:
    assert mistakes(text)[0].text("shop.yaml").startswith(shown)


def test_targets_of_one_table_or_one_connector_are_refused() -> None:
    text = (
        "pipeline: p\ntargets:\n  a: {topics: x, tables: [s.t]}\n  b: {topics: y, tables: "
        "[s.t], connector: p-a}\n"
    )
    assert [each.problem for each in mistakes(text)] == [
        "target a also writes to this table",
        "connector p-a is already defined by target a",
    ]


def test_what_the_sink_itself_refuses_is_shown_at_its_field() -> None:
    (found,) = mistakes(MistakeCase(MERGE + "table-properties: {format-version: 1}", 0, "").text())
    assert (found.position.line, found.where) == (
        8,
        "targets.orders.table-properties.format-version",
    )
    assert found.problem == "merged tables require format version 2 or 3"


def test_a_shop_of_twelve_tables_becomes_three_connectors() -> None:
    pipeline = parse_pipeline(SHOP)
    assert list(pipeline.connectors) == ["shop-masters", "shop-orders", "shop-clicks"]
    for name, connector in pipeline.connectors.items():
        config = IcebergSinkConfig.parse({**connector.config, "name": name})
        assert config.warnings == ()
        assert connector.config["connect_py.pipeline"] == "shop"
        assert config.catalog["token"] == "${env:TOKEN}"
    masters, orders, clicks = (dict(each.config) for each in pipeline.connectors.values())
    (rule,) = topic_rules(masters["iceberg.ext.topic-to-table"])
    assert [rule.tables(topic) for topic in masters["topics"].split(",")] == [
        (f"shop.{name}",) for name in LISTED
    ]
    (rule,) = topic_rules(orders["iceberg.ext.topic-to-table"])
    assert [rule.tables(f"shop.public.{name}") for name in ROUTED] == [
        (f"shop.{name}",) for name in ROUTED
    ]
    parsed = IcebergSinkConfig.parse({**orders, "name": "o"})
    assert parsed.table("shop.order_lines").id_columns == ("order_id", "line")
    assert parsed.table("shop.orders").maintenance.small_files == 5
    assert [each.name for each in parsed.table("shop.returns").expectations] == ["amount"]
    # its own wins over `defaults`
    assert {each.value for each in parsed.evolution.values()} == {"hold"}
    assert clicks["iceberg.tables.default-partition-by"] == "days(at),bucket(session, 16)"
    assert (clicks["errors.tolerance"], clicks["iceberg.tables"]) == ("all", "shop.clicks")


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (BASE + "format: json-schemas", {"value.converter.schemas.enable": "true"}),
        (
            BASE
            + "format: avro\nregistry: http://r\nkey-format: string\nconverter: {use.latest: true}",
            {
                "key.converter": "org.apache.kafka.connect.storage.StringConverter",
                "value.converter": "io.confluent.connect.avro.AvroConverter",
                "value.converter.schema.registry.url": "http://r",
                "value.converter.use.latest": "true",
            },
        ),
        (
            MERGE + "unwrap: debezium\ntransforms: [{type: A, field: 7}, {type: B, name: late, "
            "predicate: old}]\n"
            "predicates: {old: {type: C, pattern: x}}",
            {
                "transforms": "unwrap,t1,late",
                "transforms.t1.field": "7",
                "transforms.late.predicate": "old",
                "transforms.unwrap.delete.tombstone.handling.mode": "tombstone",
                "predicates.old.pattern": "x",
            },
        ),
        (
            MERGE + "unwrap: debezium\ncdc-field: __op",
            {"transforms.unwrap.delete.tombstone.handling.mode": "rewrite"},
        ),
        (
            TOPIC + "route: {field: kind, names-table: true}",
            {"iceberg.tables.dynamic-enabled": "true"},
        ),
        (
            TOPIC + "route: {field: a.b}\ntables: {s.t: {when: x.*, renamed: {a: b, c: d}}}",
            {
                "iceberg.tables": "s.t",
                "iceberg.tables.route-field": "a.b",
                "iceberg.table.s.t.route-regex": "x.*",
                "iceberg.table.s.t.renamed": "a:b,c:d",
            },
        ),
        (
            BASE + "commit-interval: 90s\ncreate-tables: no\nmaintenance: true\n"
            "properties: {iceberg.ext.null-key: skip}",
            {
                "iceberg.control.commit.interval-ms": "90000",
                "iceberg.tables.auto-create-enabled": "false",
                "iceberg.ext.maintenance.enabled": "true",
                "iceberg.ext.null-key": "skip",
            },
        ),
        (
            BASE + "schema-changes: try",
            {"iceberg.ext.evolution.rename": "ignore", "iceberg.ext.evolution.widen": "apply"},
        ),
        (
            BASE
            + "transforms: [{type: A, a: TRUE, b: False, c: n, d: 'NO', e: 0x1F, f: 2026-01-02, g: "
            "1_0}]\n"
            "properties: {x.no: !!int 7, no: !!float 5}",
            {
                "transforms.t1.a": "true",
                "transforms.t1.b": "false",
                "transforms.t1.c": "n",
                "transforms.t1.d": "NO",
                "transforms.t1.e": "0x1F",
                "transforms.t1.f": "2026-01-02",
                "transforms.t1.g": "1_0",
                "x.no": "7",
                "no": "5",
            },
        ),
        (BASE + "schema-changes: fail", {"iceberg.ext.evolution.add-column": "dead-letter"}),
        (
            TOPIC + AUTO + "branch: ${file:a:b}",
            {"iceberg.tables.default-commit-branch": "${file:a:b}"},
        ),
        ("topics: ['${env:A}']\n" + AUTO, {"topics": "${env:A}"}),
    ],
)
def test_each_field_becomes_keys_of_the_connector(lines: str, expected: dict[str, str]) -> None:
    config = target(lines)
    assert {key: config.get(key) for key in expected} == expected


def test_example_of_the_documentation_is_a_pipeline() -> None:
    page = (Path(__file__).parents[2] / "docs" / "how-to" / "pipelines.md").read_text()
    text = page.partition("```yaml\n")[2].partition("```")[0]
    assert list(parse_pipeline(text).connectors) == ["shop-masters", "shop-orders"]


def test_schema_for_editors_refuses_what_has_a_wrong_shape() -> None:
    jsonschema.Draft202012Validator.check_schema(json_schema())
    assert SCHEMA.is_valid(yaml.safe_load(SHOP))
    assert {
        name
        for name, case in MISTAKES.items()
        if case.of_shape and SCHEMA.is_valid(yaml.safe_load(case.text()))
    } == set()


def leaves(document: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    below = (
        document.items()
        if isinstance(document, dict)
        else enumerate(document)
        if isinstance(document, list)
        else ()
    )
    return [path, *(leaf for key, value in below for leaf in leaves(value, (*path, key)))]


DOCUMENT = yaml.safe_load(SHOP)
VALUES = st.sampled_from(
    [
        "x",
        "merge",
        "auto",
        "${env:X}",
        "a,b",
        "{x}",
        "(",
        "debezium",
        0,
        3,
        True,
        None,
        [],
        ["a.b"],
        [1],
        {},
        {"a": 1},
        {"a.b": {}},
        [{"type": "x"}],
        [{"topics": ".*", "tables": "{1}"}],
        {"field": "x"},
        {"x": {"sql": "1", "action": "drop"}},
    ]
)


@settings(max_examples=50)
@given(st.sampled_from(leaves(DOCUMENT)[1:]), VALUES)
def test_editors_and_validation_agree_on_shapes(place: tuple[Any, ...], value: object) -> None:
    """Validation knows more than a schema can say, so it may refuse more; never less."""
    changed = json.loads(json.dumps(DOCUMENT))
    below = changed
    for key in place[:-1]:
        below = below[key]
    below[place[-1]] = value
    found = Mistakes()
    tree = read_yaml(json.dumps(changed), found)
    assert tree is not None
    FILE.read(tree, "", found)
    shapes = [
        each
        for each in found.sorted()
        if ", expected " in each.problem or "is not one of" in each.problem
    ]
    valid = SCHEMA.is_valid(changed)
    assert valid or found
    assert not (valid and shapes), shapes
    with suppress(PipelineFileError):
        parse_pipeline(json.dumps(changed))
