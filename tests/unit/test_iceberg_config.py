"""The Iceberg sink's configuration: both Java sinks' keys, their messages, and our own keys."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from iceberg_staging_rows import APACHE, BASE, TABULAR, config

from connect_py.api.errors import ConfigError
from connect_py.config.config_provider import ConfigResolver
from connectors.iceberg.config.layout_terms import (
    PartitionTerm,
    parse_partition_by,
    split_outside_brackets,
)
from connectors.iceberg.config.sink_config import IcebergSinkConfig, validate
from connectors.iceberg.config.sink_options import CONFIG_DEF, ClassFamily, LogicalTypes, Unrouted
from connectors.iceberg.config.table_config import compile_java_pattern
from connectors.iceberg.connector import IcebergSinkConnector
from connectors.iceberg.table.schema_change import ChangeAction, ChangeKind
from connectors.iceberg.table.table import WriteMode

STATIC = BASE | {"iceberg.tables": "db.a"}


def parse(**more: str) -> IcebergSinkConfig:
    return IcebergSinkConfig.parse(
        STATIC | {k.replace("__", ".").replace("_", "-"): v for k, v in more.items()}
    )


def test_defaults_are_those_of_the_java_sinks() -> None:
    config = IcebergSinkConfig.parse(STATIC)
    assert config.control_topic == "control-iceberg"
    assert config.connect_group == "connect-orders-sink"
    assert config.control_group == "cg-control-orders-sink"
    assert config.commit_interval_ms == 300_000
    assert config.commit_timeout_ms == 30_000
    # regardless of the definition, it must be set explicitly
    assert config.commit_max_failures is None
    assert config.catalog_name == "iceberg"
    assert not any((config.auto_create, config.force_optional, config.case_insensitive))
    assert {config.evolution[kind] for kind in ChangeKind} == {ChangeAction.IGNORE}
    assert config.mode is WriteMode.APPEND
    assert config.unrouted is Unrouted.IGNORE
    assert not config.full_merge
    assert config.channel_topic == "control-iceberg-connect-orders-sink"
    assert config.warnings == ()


@pytest.mark.parametrize(
    ("props", "message"),
    [
        (
            {"iceberg.tables": "db.a", "iceberg.ext.envelope": "debezium"},
            "requires iceberg.tables.upsert-mode-enabled=true",
        ),
        (
            {"iceberg.tables": "db.a", "iceberg.catalog.type": None},
            "Must specify Iceberg catalog properties",
        ),
        (
            {"iceberg.tables": "db.a", "iceberg.tables.dynamic-enabled": "true"},
            "Cannot specify both static and dynamic table names",
        ),
        (
            {"iceberg.tables.dynamic-enabled": "true"},
            "Must specify a route field if using dynamic table names",
        ),
        ({}, "Must specify table name(s)"),
        ({"iceberg.tables": ""}, "Must specify table name(s)"),
        (
            {"iceberg.tables": "db.a", "iceberg.control.commit.max-consecutive-failures": "0"},
            "at least 1",
        ),
        ({"iceberg.tables": "db..a"}, "db..a is not a table name"),
        (
            {"iceberg.tables": "db.a", "iceberg.catalog.catalog-impl": "x.Y"},
            "both type and catalog-impl are set",
        ),
        (
            {"iceberg.tables": "db.a", "iceberg.tables.default-partition-by": "days(ts"},
            "Invalid partition field",
        ),
        (
            {"iceberg.tables": "db.a", "iceberg.table.db.a.partition-by": "weeks(ts)"},
            "Unsupported transform: weeks",
        ),
        (
            {
                "iceberg.tables": "db.a",
                "iceberg.tables.route-field": "f",
                "iceberg.table.db.a.route-regex": "(",
            },
            "Invalid regex",
        ),
        (
            {"iceberg.tables": "db.a", "iceberg.table.db.a.route-regex": "x"},
            "has no effect without",
        ),
        ({"iceberg.tables": "db.a", "iceberg.ext.topic-to-table": "a:b"}, "cannot be combined"),
        ({"iceberg.ext.topic-to-table": "a:{1}"}, "is not a group of the pattern"),
        (
            {"iceberg.tables": "db.a", "iceberg.ext.snapshot-events": "ignore"},
            "requires iceberg.ext.envelope=debezium",
        ),
        (
            {
                "iceberg.tables": "db.a",
                "iceberg.tables.cdc-field": "_cdc.op.kind",
                "iceberg.ext.snapshot-events": "ignore",
            },
            "Debezium's op or __op",
        ),
        ({"iceberg.ext.topic-to-table": "no-template"}, "expected pattern:template"),
        (
            {"iceberg.tables": "db.a", "iceberg.ext.commit-engine": "merge"},
            "merge requires merged tables, but rows are appended",
        ),
        ({"iceberg.tables": "db.a", "iceberg.ext.unrouted": "explode"}, "must be one of"),
    ],
)
def test_bad_combinations_say_what_users_search_for(
    props: dict[str, str | None], message: str
) -> None:
    given = {k: v for k, v in {**BASE, **props}.items() if v is not None}
    with pytest.raises(ConfigError) as raised:
        IcebergSinkConfig.parse(given)
    assert message in str(raised.value)
    shown = [error for value in validate(given).values() for error in value.errors]
    assert any(message in error for error in shown), shown


def test_problems_are_shown_under_the_key_that_has_them() -> None:
    wrong = {"iceberg.table.db.a.partition-by": "weeks(ts)", "iceberg.ext.topic-to-table": "a:b"}
    shown = {name: value.errors for name, value in validate(STATIC | wrong).items() if value.errors}
    assert shown.keys() == wrong.keys()
    assert shown["iceberg.table.db.a.partition-by"] == ["Unsupported transform: weeks"]


@pytest.mark.parametrize("key", ["iceberg.spark.remote", "iceberg.spark.spark.remote"])
@pytest.mark.parametrize("value", ["sc://spark:15002", ""])
def test_spark_connect_is_refused_with_the_alternatives(key: str, value: str) -> None:
    errors = {
        name: entry.errors
        for name, entry in validate(STATIC | {key: value}).items()
        if entry.errors
    }
    message = (
        "Spark Connect is no longer supported; to run commits on a Spark cluster, "
        "set iceberg.spark.master to spark://host:port, yarn, or k8s://https://host:port"
    )
    assert errors == {key: [message]}
    with pytest.raises(ConfigError, match=re.escape(f"{key}: {message}")):
        IcebergSinkConfig.parse(STATIC | {key: value})


def test_validation_of_a_good_configuration_shows_no_error() -> None:
    assert [v.name for v in validate(STATIC).values() if v.errors] == []


def test_placeholders_below_a_prefix_are_resolved_before_parsing(tmp_path: Path) -> None:
    (tmp_path / "secrets").write_text("password=s3cret\nrest=http://catalog:8181\n")
    given = STATIC | {
        "iceberg.catalog.uri": f"${{file:{tmp_path}/secrets:rest}}/lake",
        "iceberg.catalog.credential": f"client:${{file:{tmp_path}/secrets:password}}",
        "iceberg.hadoop.fs.s3a.secret.key": f"${{file:{tmp_path}/secrets:password}}",
        "iceberg.table.db.a.id-columns": "id",
    }
    resolver = ConfigResolver.of(
        {
            "config.providers": "file",
            "config.providers.file.class": "org.apache.kafka.common.config.provider.FileConfigProvider",  # noqa: E501 - one literal
        }
    )
    config = IcebergSinkConfig.parse(resolver.resolve(given))
    assert config.catalog["uri"] == "http://catalog:8181/lake"
    assert config.catalog["credential"] == "client:s3cret"
    assert config.hadoop_settings()["fs.s3a.secret.key"] == "s3cret"


def test_table_settings_match_the_full_table_name_despite_shared_prefixes() -> None:
    config = parse(
        iceberg__tables="db.a,db.a.b",
        iceberg__table__db__a__id_columns="x",
        iceberg__table__db__a__b__id_columns="y , z",
    )
    assert config.table("db.a").id_columns == ("x",)
    assert config.table("db.a.b").id_columns == ("y", "z")


def test_short_table_name_in_settings_is_accepted_with_a_warning() -> None:
    config = parse(iceberg__table__a__id_columns="x")
    assert config.table("db.a").id_columns == ("x",)
    assert any("iceberg.table.a.id-columns" in w for w in config.warnings)


def test_defaults_apply_to_tables_without_own_settings() -> None:
    partition_by = "day(ts),bucket(id, 4)"
    config = parse(
        iceberg__tables__default_id_columns="id, v",
        iceberg__tables__default_partition_by=partition_by,
        iceberg__tables__default_commit_branch="audit",
    )
    table = config.table("db.other")
    assert table.id_columns == ("id", "v")
    assert [t.name for t in table.partition_by] == ["ts_day", "id_bucket"]
    assert table.commit_branch == "audit"


def test_old_spellings_of_keys_are_read_with_a_warning() -> None:
    config = IcebergSinkConfig.parse(
        BASE
        | {
            "connector.class": TABULAR,
            "iceberg.tables.dynamic.enabled": "true",
            "iceberg.tables.routeField": "a.b",
            "iceberg.tables.upsertModeEnabled": "true",
            "iceberg.control.commitIntervalMs": "1000",
            "iceberg.control.group.id": "g",
            "iceberg.table.db.x.idColumns": "k",
        }
    )
    assert config.dynamic
    assert config.route_field == ("a", "b")
    assert config.mode is WriteMode.MERGE
    assert config.commit_interval_ms == 1000
    assert config.control_group == "g"
    assert config.table("db.x").id_columns == ("k",)
    assert len([w for w in config.warnings if "old spelling" in w]) == 6


@pytest.mark.parametrize(
    ("key", "said"),
    [
        ("iceberg.tables.auto-create-enable", "did you mean iceberg.tables.auto-create-enabled?"),
        ("iceberg.tabels.dynamic-enabled", "did you mean iceberg.tables.dynamic-enabled?"),
        ("iceberg.catlog.type", "did you mean iceberg.catalog.type?"),
        (
            "iceberg.tables.auto-create-prop.a.b",
            "did you mean iceberg.tables.auto-create-props.a.b?",
        ),
        ("iceberg.table.default-partition-by", "did you mean iceberg.tables.default-partition-by?"),
        (
            "iceberg.table.namespace",
            "the namespace is part of a table's name, as in iceberg.tables=sales.orders",
        ),
        ("iceberg.ext.snapshot-event", "did you mean iceberg.ext.snapshot-events?"),
        ("iceberg.ext.uri", "iceberg.ext.uri is unknown and has no effect"),
        ("iceberg.ext.nonsense", "iceberg.ext.nonsense is unknown and has no effect"),
        ("iceberg.table.a.id-colums", "did you mean iceberg.table.a.id-columns?"),
        ("iceberg.table.db.orders.id-columns", "no rows are routed to table db.orders"),
        ("iceberg.table.db.b.id-columns", "no rows are routed to table db.b; did you mean db.a?"),
    ],
)
def test_unknown_key_warning_gives_nearest_key_or_a_reason(key: str, said: str) -> None:
    (warning,) = IcebergSinkConfig.parse(STATIC | {key: "x"}).warnings
    assert warning.startswith(key)
    assert warning.endswith(said)


@pytest.mark.parametrize(
    "key",
    [
        "iceberg.catalog.anything",
        "iceberg.hadoop.fs.x",
        "iceberg.kafka.acks",
        "iceberg.spark.master",
        "iceberg.tables.auto-create-props.write.x",
        "iceberg.table.write-props.x",
        "iceberg.tables.write-props.x",
        "iceberg.table.db.a.commit-branch",
        "iceberg.table.db.a-changes.commit-branch",
        "iceberg.table.db.letters.partition-by",
        "icebergs",
        "transforms.iceberg.x",
        *CONFIG_DEF.keys,
    ],
)
def test_a_key_that_is_read_is_not_told_as_unknown(key: str) -> None:
    props = STATIC | {
        "iceberg.ext.changelog-suffix": "-changes",
        "iceberg.ext.envelope": "debezium",
        "iceberg.tables.upsert-mode-enabled": "true",
        "errors.tolerance": "all",
        "errors.deadletterqueue.iceberg.table": "db.letters",
    }
    config = IcebergSinkConfig.parse(
        props if key in CONFIG_DEF.keys else props | {key: "bucket(4, x)"}
    )
    assert not [w for w in config.warnings if "has no effect" in w]


def test_connector_logs_configuration_warnings_once_and_its_tasks_do_not(
    caplog: pytest.LogCaptureFixture,
) -> None:
    connector = IcebergSinkConnector()
    connector.start(
        STATIC | {"iceberg.ext.nonsense": "x", "iceberg.control.commitIntervalMs": "1000"}
    )
    assert len(connector.task_configs(3)) == 3
    told = [record.getMessage().split()[0] for record in caplog.records]
    assert told == ["iceberg.control.commitIntervalMs", "iceberg.ext.nonsense"]


@pytest.mark.parametrize(
    ("name", "topic"),
    [
        ("a.b_C-1", "control-iceberg-connect-a.b_C-1"),  # as ever
        ("my sink", "control-iceberg.connect-my_000020sink"),
        ("my_000020sink", "control-iceberg-connect-my_000020sink"),
        ("my sink/\u00fc_", "control-iceberg.connect-my_000020sink_00002f_0000fc_00005f"),
    ],
)
def test_a_connector_of_any_name_has_a_channel(name: str, topic: str) -> None:
    assert IcebergSinkConfig.parse(STATIC | {"name": name}).channel_topic == topic


def test_channels_of_connectors_with_long_names_are_topics_and_differ() -> None:
    names = ["x" * 225, "x" * 300, "x" * 301, "\u00fc" * 30, "\u00fc" * 31, "\u00fc" * 32]
    topics = [IcebergSinkConfig.parse(STATIC | {"name": name}).channel_topic for name in names]
    assert len(set(topics)) == len(names)
    assert topics[0] == "control-iceberg-connect-" + names[0]
    for topic in topics:
        assert re.fullmatch(r"[a-zA-Z0-9._-]{1,249}", topic)


def test_keys_that_never_had_an_effect_warn() -> None:
    config = IcebergSinkConfig.parse(
        STATIC | {"iceberg.tables.id-columns": "x", "iceberg.control.group.id": "g"}
    )
    assert any("iceberg.tables.id-columns" in w for w in config.warnings)
    assert any("iceberg.control.group.id has no effect" in w for w in config.warnings)


def test_options_that_went_warn_and_their_connector_starts() -> None:
    went = ("evolution.view", "variable-decimal-scale", "deleted-column", "set-identifier-fields")
    config = IcebergSinkConfig.parse(STATIC | {f"iceberg.ext.{key}": "1" for key in went})
    for key in went:
        assert [w for w in config.warnings if w.startswith(f"iceberg.ext.{key} has no effect; ")]


def test_cdc_keys_turn_on_merge_under_either_class_name() -> None:
    apache = parse(iceberg__tables__cdc_field="_cdc.op")
    assert apache.mode is WriteMode.MERGE
    assert apache.cdc_field == ("_cdc", "op")
    assert any("Apache's sink ignored them" in w for w in apache.warnings)
    assert apache.format_version() == 3
    assert apache.logical_types is LogicalTypes.FULL
    tabular = IcebergSinkConfig.parse(
        STATIC | {"connector.class": TABULAR, "iceberg.tables.upsert-mode-enabled": "true"}
    )
    assert tabular.mode is WriteMode.MERGE
    assert tabular.family is ClassFamily.TABULAR
    assert tabular.format_version() == 2
    assert tabular.logical_types is LogicalTypes.CONNECT
    assert (
        parse(iceberg__tables__cdc_field="op", iceberg__ext__write_mode="append").mode
        is WriteMode.APPEND
    )


def test_prefixed_settings_pass_through_and_write_props_accept_both_spellings() -> None:
    config = IcebergSinkConfig.parse(
        STATIC
        | {
            "iceberg.catalog.uri": "jdbc:sqlite:x",
            "iceberg.hadoop.fs.s3a.endpoint": "e",
            "iceberg.kafka.security.protocol": "SSL",
            "iceberg.spark.master": "local[2]",
            "iceberg.spark.spark.ui.enabled": "false",
            "iceberg.table.write-props.a": "1",
            "iceberg.tables.write-props.b": "2",
            "iceberg.tables.auto-create-props.format-version": "3",
        }
    )
    assert config.catalog == {"type": "jdbc", "uri": "jdbc:sqlite:x"}
    assert config.hadoop == {"fs.s3a.endpoint": "e"}
    assert config.kafka == {"security.protocol": "SSL"}
    assert config.spark == {"spark.master": "local[2]", "spark.ui.enabled": "false"}
    assert config.write_props == {"a": "1", "b": "2"}
    assert config.format_version() == 3


def test_secrets_do_not_show_in_the_configuration_or_in_validation() -> None:
    props = STATIC | {"iceberg.catalog.token": "s3cret", "iceberg.kafka.sasl.jaas.config": "s3cret"}
    config = IcebergSinkConfig.parse(props)
    assert config.catalog["token"] == "s3cret"
    assert "s3cret" not in repr(config)
    assert "s3cret" not in repr(validate(props))


def test_topics_map_to_tables_by_the_first_full_match() -> None:
    config = IcebergSinkConfig.parse(
        BASE
        | {
            "iceberg.ext.topic-to-table": r"shop\.(?<schema>\w+)\.(\w{1,20}):{schema}.{2}_raw, "
            r"(?:a|b):db.{topic}"
        }
    )
    shop, other = config.topic_rules
    assert shop.tables("shop.public.orders") == ("public.orders_raw",)
    assert shop.tables("xshop.public.orders") is None
    assert other.tables("b") == ("db.b",)


@pytest.mark.parametrize("templates", ["db.a+", "db..a", "db.{2}", "db.{", "db.a+.b"])
def test_templates_that_name_no_table_are_refused(templates: str) -> None:
    with pytest.raises(ConfigError, match="topic-to-table"):
        IcebergSinkConfig.parse(BASE | {"iceberg.ext.topic-to-table": f"(.*):{templates}"})


def test_every_configuration_key_has_a_documentation_sentence() -> None:
    assert all(key.doc.endswith(".") for key in CONFIG_DEF)


@pytest.mark.parametrize(
    ("text", "term"),
    [
        ("id", PartitionTerm("id", "identity")),
        ("days( ts )", PartitionTerm("ts", "day")),
        ("month(a.b)", PartitionTerm("a.b", "month")),
        ("bucket(id, 16)", PartitionTerm("id", "bucket", 16)),
        ("truncate(name,3)", PartitionTerm("name", "truncate", 3)),
        ("identity(x)", PartitionTerm("x", "identity")),
        ("void(x)", PartitionTerm("x", "void")),
    ],
)
def test_partition_by_text_is_parsed_into_its_term(text: str, term: PartitionTerm) -> None:
    assert parse_partition_by((text,)) == (term,)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("bucket(16, id)", "the column comes first"),
        ("bucket(id)", "should have 2 parts"),
        ("Days(ts)", "Unsupported transform"),
        ("bucket(id, 0)", "not a positive integer"),
        ("days()", "expected one column"),
    ],
)
def test_partition_fields_that_make_no_sense_are_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_partition_by((text,))


def test_lists_of_columns_may_stand_in_brackets() -> None:
    made = config(
        tables__default_id_columns="[a, b]",
        tables__default_partition_by="[bucket(a, 4), hour(ts)]",
        **{
            "table__db.orders__id_columns": " [ event_id ] ",
            "table__db.orders__partition_by": "[days(ts),region]",
        },
    )
    plain = config(
        tables__default_id_columns="a,b",
        tables__default_partition_by="bucket(a, 4),hour(ts)",
        **{
            "table__db.orders__id_columns": "event_id",
            "table__db.orders__partition_by": "days(ts),region",
        },
    )
    assert made.table("db.orders") == plain.table("db.orders")
    assert made.table("db.others") == plain.table("db.others")
    assert config(tables__default_id_columns="[]").table("db.orders").id_columns == ()


@pytest.mark.parametrize("key", ["tables__default_id_columns", "tables__default_partition_by"])
@pytest.mark.parametrize("text", ["[a", "a]", "[a],[b]", "[[a]]", "a,[b]", "[a, bucket(b, 4)"])
def test_brackets_elsewhere_are_refused_by_name(key: str, text: str) -> None:
    with pytest.raises(ConfigError, match=r"default-(id-columns|partition-by): .*brackets"):
        config(**{key: text})


def test_commas_inside_brackets_do_not_split() -> None:
    assert split_outside_brackets("days(ts), bucket(id, 4) ,x{1,2}") == [
        "days(ts)",
        "bucket(id, 4)",
        "x{1,2}",
    ]


@pytest.mark.parametrize(
    ("pattern", "text", "matches"),
    [
        (r"\Qa.b\E.*", "a.bc", True),
        (r"\Qa.b\E.*", "axbc", False),
        (r"\p{Upper}\p{Lower}+", "Abc", True),
        (r"[\p{Digit}_]+", "1_2", True),
        (r"(?<x>a)\d", "a1", True),
        (r"\d", "٣", False),
        (r"a++b", "aab", True),
        ("[a-z&&[^b]]", "a", True),
        ("[a-z&&[^b]]", "b", False),
    ],
)
def test_java_regex_patterns_match_the_same_texts_in_python(
    pattern: str, text: str, matches: bool
) -> None:
    assert bool(compile_java_pattern(pattern).fullmatch(text)) is matches


@pytest.mark.parametrize("pattern", [r"\p{IsGreek}", r"[\p{IsGreek}]", "("])
def test_java_patterns_without_a_translation_are_refused(pattern: str) -> None:
    with pytest.raises(ValueError, match="Invalid regex"):
        compile_java_pattern(pattern)


def test_the_class_name_decides_the_family() -> None:
    assert ClassFamily.of(APACHE) is ClassFamily.APACHE
    assert ClassFamily.of(TABULAR) is ClassFamily.TABULAR


@pytest.mark.parametrize("engine", ["append", "delta"])
def test_former_commit_engine_is_read_as_auto_with_a_warning(engine: str) -> None:
    made = IcebergSinkConfig.parse(
        STATIC | {"iceberg.tables.cdc-field": "op", "iceberg.ext.commit-engine": engine}
    )
    assert [w for w in made.warnings if f"commit-engine={engine} is equivalent to auto" in w]


def test_commit_threads_default_to_at_most_four() -> None:
    assert 1 <= parse().commit_threads <= 4
    assert parse(iceberg__control__commit__threads="7").commit_threads == 7
