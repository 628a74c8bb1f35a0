"""Results of validations: rows, their order, error messages, and error counts."""

from __future__ import annotations

import traceback
from concurrent.futures import Future
from pathlib import Path

import pytest
from fixtures.herder_fake_worker import DEMO_SINK, FakeWorker

from connect_py.api.errors import ConfigError, ConnectError, NotFoundError
from connect_py.api.task import ExactlyOnceSupport, TransactionBoundarySupport
from connect_py.clock import SystemClock
from connect_py.config.worker_config import DistributedConfig
from connect_py.herder.herder import BadRequestError, ConfigInfos, ConfigValueInfo
from connect_py.herder.requests.config_requests import error_message
from connect_py.herder.thread.stage_board import StageBoard
from connect_py.herder.validation.validator import Validator

SINK: dict[str, str | None] = {"connector.class": "DemoSink", "name": "a", "topics": "t"}
SOURCE: dict[str, str | None] = {"connector.class": "DemoSource", "name": "a"}
COMMON = [
    "name",
    "connector.class",
    "connector.plugin.version",
    "tasks.max",
    "tasks.max.enforce",
    "key.converter",
    "key.converter.plugin.version",
    "value.converter",
    "value.converter.plugin.version",
    "header.converter",
    "header.converter.plugin.version",
    "transforms",
    "predicates",
    "config.action.reload",
    "errors.retry.timeout",
    "errors.retry.delay.max.ms",
    "errors.tolerance",
    "errors.log.enable",
    "errors.log.include.messages",
]
SINK_KEYS = [
    "topics",
    "topics.regex",
    "errors.deadletterqueue.topic.name",
    "errors.deadletterqueue.topic.replication.factor",
    "errors.deadletterqueue.context.headers.enable",
]


def validator(tmp_path: Path | None = None, **more: str) -> Validator:
    props = {
        "bootstrap.servers": "x:1",
        "group.id": "connect-g",
        "config.storage.topic": "c",
        "status.storage.topic": "s",
        "offset.storage.topic": "o",
        "key.converter": "DemoConverter",
        "value.converter": "com.example.DemoConverter",
        "header.converter": "com.example.DemoHeaderConverter",
    }
    config = DistributedConfig.of({**props, **more})
    return Validator(config, FakeWorker(None))  # type: ignore[arg-type]  # validation does not notify the listener


def check(config: dict[str, str | None], **worker: str) -> ConfigInfos:
    return validator(**worker).validate(config, StageBoard(SystemClock()))


def value(infos: ConfigInfos, name: str) -> ConfigValueInfo:
    (found,) = [
        info.value for info in infos.configs if info.value is not None and info.value.name == name
    ]
    return found


def test_good_sink_has_all_rows_in_order_and_no_errors() -> None:
    infos = check(SINK)
    assert infos.error_count == 0
    assert infos.name == "DemoSink"
    assert [info.value.name for info in infos.configs if info.value] == [
        *COMMON,
        *SINK_KEYS,
        "demo.x",
    ]
    assert infos.groups == ["Common", "Transforms", "Predicates", "Error Handling"]
    tasks = infos.configs[3].definition
    assert tasks is not None
    assert (tasks.default_value, tasks.order_in_group, tasks.width, tasks.display_name) == (
        "1",
        4,
        "SHORT",
        "Tasks max",
    )
    assert value(infos, "key.converter").value == "DemoConverter"
    assert value(infos, "key.converter").recommended_values == ["com.example.DemoConverter"]
    assert value(infos, "key.converter.plugin.version").value == "1.0"
    assert value(infos, "connector.plugin.version").value == "1.0"


def test_sources_have_their_own_keys_and_groups() -> None:
    infos = check(SOURCE)
    assert [info.value.name for info in infos.configs if info.value][19:] == [
        "topic.creation.groups",
        "exactly.once.support",
        "transaction.boundary",
        "transaction.boundary.interval.ms",
        "offsets.storage.topic",
        "demo.x",
    ]
    assert infos.groups[4:] == ["Topic Creation", "Exactly Once Support", "offsets.topic"]


class Answers:
    """What a connector answers to questions about its abilities; an error is raised."""

    def __init__(self, answer: object) -> None:
        self.answer = answer

    def __call__(self, class_name: str, method: str, *arguments: object) -> Future[object]:
        future: Future[object] = Future()
        if isinstance(self.answer, Exception):
            future.set_exception(self.answer)
        else:
            future.set_result(self.answer)
        return future


NOT_ENABLED = "This worker does not have exactly-once source support enabled."


@pytest.mark.parametrize(
    ("worker", "answer", "errors"),
    [
        ("enabled", ExactlyOnceSupport.SUPPORTED, []),
        ("preparing", ExactlyOnceSupport.SUPPORTED, [NOT_ENABLED]),
        (
            "disabled",
            ExactlyOnceSupport.UNSUPPORTED,
            [
                NOT_ENABLED,
                "The connector does not support exactly-once semantics with the provided "
                "configuration.",
            ],
        ),
        (
            "enabled",
            None,
            ["The connector does not implement the API required for preflight validation of"],
        ),
        (
            "enabled",
            ConnectError("no idea"),
            ["An unexpected error occurred during validation: no idea"],
        ),
    ],
)
def test_required_exactly_once_needs_support_of_worker_and_connector(
    worker: str, answer: object, errors: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FakeWorker, "call_connector", Answers(answer), raising=False)
    infos = check(
        {**SOURCE, "exactly.once.support": "REQUIRED"}, **{"exactly.once.source.support": worker}
    )
    assert len(infos.errors()) == len(errors)
    assert all(told.startswith(text) for told, text in zip(infos.errors(), errors, strict=True))
    assert check({**SOURCE, "exactly.once.support": "requested"}).errors() == []


def test_only_a_connector_that_can_may_define_transaction_boundaries(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    config: dict[str, str | None] = {**SOURCE, "transaction.boundary": "Connector"}
    monkeypatch.setattr(
        FakeWorker, "call_connector", Answers(TransactionBoundarySupport.SUPPORTED), raising=False
    )
    assert check(config).errors() == []
    monkeypatch.setattr(
        FakeWorker, "call_connector", Answers(TransactionBoundarySupport.UNSUPPORTED), raising=False
    )
    assert check(config).errors() == [
        "The connector does not support connector-defined transaction boundaries with the given "
        "configuration. Please reconfigure it to use a different transaction boundary definition."
    ]


@pytest.mark.parametrize(
    ("change", "errors"),
    [
        (
            {"tasks.max": "abc"},
            [
                "Invalid value abc for configuration tasks.max: Not a number of type INT",
                "Invalid value null for configuration tasks.max: Value must be non-null",
            ],
        ),
        (
            {"tasks.max": "0"},
            ["Invalid value 0 for configuration tasks.max: Value must be at least 1"],
        ),
        ({"topics": None, "x": "y"}, None),
        ({"topics": ""}, ["Must configure one of topics or topics.regex"] * 2),
        (
            {"topics.regex": "t.*"},
            ["topics and topics.regex are mutually exclusive options, but both are set."] * 2,
        ),
        (
            {"errors.deadletterqueue.topic.name": "t"},
            [
                "The DLQ topic 't' may not be included in the list of topics ('topics=[t]') "
                "consumed by the connector",
            ],
        ),
        (
            {"topics": "", "topics.regex": "d.*", "errors.deadletterqueue.topic.name": "dlq"},
            [
                "The DLQ topic 'dlq' may not be matched by the regex for the topics "
                "('topics.regex=d.*') consumed by the connector",
            ],
        ),
        (
            {"errors.deadletterqueue.iceberg.table": "db.dead"},
            [
                "DemoSink does not support a dead letter table; use "
                "errors.deadletterqueue.topic.name"
            ],
        ),
        (
            {"errors.deadletterqueue.iceberg.replay.topic": "again"},
            [
                "DemoSink does not support a dead letter table; use "
                "errors.deadletterqueue.topic.name"
            ],
        ),
        ({"name": " "}, ["Invalid value  for configuration name: String may not be empty"]),
        (
            {"name": "a\nb\x7f"},
            [
                "Invalid value a\nb\x7f for configuration name: String may not contain control "
                "sequences but had the "
                "following ASCII chars: 10, 127",
            ],
        ),
        (
            {"name": "g"},
            [
                "Consumer group for sink connector named g conflicts with Connect worker group "
                "connect-g"
            ],
        ),
        (
            {"consumer.override.group.id": "connect-g"},
            ["Consumer group connect-g conflicts with Connect worker group connect-g"],
        ),
        (
            {"errors.tolerance": "some"},
            [
                "Invalid value some for configuration errors.tolerance: String must be one of: "
                "none, all"
            ],
        ),
        (
            {"key.converter": "Nope"},
            ["Invalid value Nope for configuration key.converter: Class Nope could not be found."],
        ),
        (
            {"key.converter": "Insert"},
            ["Class class com.example.Insert does not implement the Converter interface"],
        ),
        ({"topics": "a,,b"}, ["Configuration 'topics' values must not be empty."]),
        ({"topics": "a,a"}, ["Configuration 'topics' values must not be duplicated."]),
        (
            {"transforms": "t", "transforms.t.type": "Insert"},
            ['Missing required configuration "transforms.t.field" which has no default value.'],
        ),
        (
            {"transforms": "t"},
            ['Missing required configuration "transforms.t.type" which has no default value.'],
        ),
        (
            {"transforms": "t", "transforms.t.type": "X"},
            ["Invalid value X for configuration transforms.t.type: Class X could not be found."],
        ),
        (
            {
                "transforms": "t",
                "transforms.t.type": "Insert",
                "transforms.t.field": "f",
                "transforms.t.negate": "true",
            },
            [
                "Config 'transforms.t.negate' was provided but there is no config "
                "'transforms.t.predicate' defining a predicate to be negated.",
            ],
        ),
        (
            {
                "transforms": "t",
                "transforms.t.type": "Insert",
                "transforms.t.field": "f",
                "transforms.t.size": "x",
            },
            ["Invalid value x for configuration size: Not a number of type INT"],
        ),
        (
            {"predicates": "p", "predicates.p.type": "NameMatches"},
            [
                'Missing required configuration "predicates.p.pattern" which has no default value.',
                "Invalid value null for configuration pattern: Invalid regex: null",
            ],
        ),
        (
            {"value.converter": "DemoConverter", "value.converter.schemas.enable": "zzz"},
            [
                "Invalid value zzz for configuration schemas.enable: Expected value to be either "
                "true or false"
            ],
        ),
        ({"demo.x": None}, ["Null value can not be supplied as the configuration value."]),
        ({"unknown": None}, ["Null value can not be supplied as the configuration value."]),
        ({"unknown": "x"}, []),
        (
            {"transforms": None},
            [
                "Invalid value null for configuration transforms: entry must be non null",
                "Null value can not be supplied as the configuration value.",
            ],
        ),
    ],
)
def test_errors_have_connects_words_and_count(
    change: dict[str, str | None], errors: list[str] | None
) -> None:
    infos = check({**SINK, **change})
    if errors is None:
        assert "Must configure one of topics or topics.regex" in infos.errors()
        return
    assert infos.errors() == errors
    assert infos.error_count == len(errors)


def test_transformation_named_twice_appears_once_in_the_validation() -> None:
    infos = check(
        {**SINK, "transforms": "t, t", "transforms.t.type": "Insert", "transforms.t.field": "f"}
    )
    assert infos.errors() == [
        "Invalid value [t, t] for configuration transforms: Duplicate alias provided."
    ]
    rows = [
        info.definition
        for info in infos.configs
        if info.definition and info.definition.name.startswith("transforms.t.")
    ]
    assert [(row.name.rpartition(".")[2], row.order_in_group) for row in rows] == [
        ("type", 0),
        ("version", 1),
        ("field", 2),
        ("negate", 3),
        ("predicate", 4),
        ("size", 5),
    ]
    assert {row.group for row in rows} == {"Transforms: t"}
    assert rows[0].display_name == "Transformation type for t"


def test_converter_keys_follow_with_their_prefix() -> None:
    infos = check({**SINK, "key.converter": "DemoConverter"})
    assert infos.configs[-1].definition is not None
    assert infos.configs[-1].definition.name == "key.converter.schemas.enable"


def test_classes_are_shown_with_full_names_and_effective_versions() -> None:
    infos = check(
        {**SINK, "key.converter": "DemoConverter", "transforms": "t", "transforms.t.type": "Insert"}
    )
    assert value(infos, "key.converter").value == "com.example.DemoConverter"
    assert value(infos, "key.converter.converter.type").value == "key"
    assert value(infos, "transforms.t.type").value == "com.example.Insert"
    version = value(infos, "transforms.t.plugin.version")
    assert (version.value, version.recommended_values) == ("1.0", ["1.0"])


def test_class_of_wrong_kind_is_shown_unlike_unknown_class() -> None:
    other = check({**SINK, "key.converter": DEMO_SINK})
    assert value(other, "key.converter").value == DEMO_SINK
    assert value(other, "key.converter.plugin.version").visible
    unknown = check({**SINK, "key.converter": "no.such.Class"})
    assert value(unknown, "key.converter").value is None
    assert value(unknown, "key.converter.plugin.version").value is None
    assert not value(unknown, "key.converter.plugin.version").visible


def test_source_with_own_offsets_topic_may_override_consumer_and_admin() -> None:
    overrides: dict[str, str | None] = {"consumer.override.a": "1", "admin.override.a": "1"}
    assert not {*overrides} & names(check({**SOURCE, **overrides}))
    assert {*overrides} <= names(check({**SOURCE, **overrides, "offsets.storage.topic": "o"}))


def names(infos: ConfigInfos) -> set[str]:
    return {info.value.name for info in infos.configs if info.value is not None}


def test_override_policies_name_what_they_refuse() -> None:
    config = {
        **SINK,
        "consumer.override.max.poll.records": "5",
        "consumer.override.sasl.mechanism": "PLAIN",
    }
    assert check(config).error_count == 0
    infos = check(config, **{"connector.client.config.override.policy": "None"})
    assert infos.error_count == 2
    infos = check(config, **{"connector.client.config.override.policy": "Principal"})
    assert infos.errors() == [
        "The 'Principal' policy does not allow 'max.poll.records' to be overridden in the "
        "connector configuration."
    ]
    allow = {
        "connector.client.config.override.policy": "Allowlist",
        "connector.client.config.override.allowlist": "max.poll.records",
    }
    assert check(config, **allow).error_count == 1


def test_overrides_are_shown_as_java_s_clients_define_them() -> None:
    config: dict[str, str | None] = {
        **SINK,
        "consumer.override.max.poll.records": " 5 ",
        "consumer.override.sasl.jaas.config": "x.PlainLoginModule required a=secret;",
        "consumer.override.no.such.key": "unchanged",
    }
    infos = check(config)
    shown = {info.value.name: info for info in infos.configs if info.value is not None}
    records = shown["consumer.override.max.poll.records"]
    assert records.value is not None
    assert records.definition is not None
    assert (records.value.value, records.definition.type, records.definition.default_value) == (
        "5",
        "INT",
        "500",
    )
    assert records.definition.name == "consumer.override.max.poll.records"
    assert value(infos, "consumer.override.sasl.jaas.config").value == "[hidden]"
    assert shown["consumer.override.no.such.key"].definition is None
    assert value(infos, "consumer.override.no.such.key").value == "unchanged"


def test_java_only_login_is_refused_in_validation_with_an_alternative() -> None:
    infos = check(
        {
            **SINK,
            "consumer.override.sasl.mechanism": "AWS_MSK_IAM",
            "consumer.override.sasl.jaas.config": "software.amazon.msk.auth.iam.IAMLoginModule "
            "required;",
        }
    )
    (text,) = infos.errors()
    assert text.startswith(
        "consumer.override.sasl.mechanism: AWS_MSK_IAM is supported only by Java clients; use OAUTH"
    )


def test_override_of_wrong_type_makes_validation_itself_fail() -> None:
    text = "Invalid value x for configuration max.poll.records: Not a number of type INT"
    with pytest.raises(ConfigError, match=text):
        check({**SINK, "consumer.override.max.poll.records": "x"})


def test_override_refusal_hides_the_value_from_config_provider(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HOLDS_A_SECRET", "s3cret")
    providers = {"config.providers": "env", "config.providers.env.class": "EnvVarConfigProvider"}
    with pytest.raises(ConfigError, match="resolved from the config provider") as refusal:
        check({**SINK, "consumer.override.max.poll.records": "${env:HOLDS_A_SECRET}"}, **providers)
    assert "s3cret" not in "".join(traceback.format_exception(refusal.value))


def test_missing_plugin_version_skips_all_other_checks() -> None:
    infos = check({**SINK, "topics": "", "connector.plugin.version": "99"})
    text = (
        f"Plugin {DEMO_SINK} not found that matches the version range [99,99], available "
        f"versions: [1.0]"
    )
    assert infos.errors() == [text, text]
    assert (infos.error_count, len(infos.configs)) == (2, 19)
    assert value(infos, "connector.plugin.version").recommended_values == ["1.0"]
    assert not value(infos, "key.converter.plugin.version").visible
    assert check({**SINK, "connector.plugin.version": "[0.9,2.0)"}).error_count == 0
    assert check({**SINK, "connector.plugin.version": "(1.0,2.0]"}).error_count == 2
    assert check({**SINK, "connector.plugin.version": "latest"}).error_count == 0


def test_values_of_providers_are_never_shown(tmp_path: Path) -> None:
    secret = tmp_path / "p.properties"
    secret.write_text("max=geheim\n")
    placeholder = f"${{file:{secret}:max}}"
    providers = {"config.providers": "file", "config.providers.file.class": "FileConfigProvider"}
    infos = check({**SINK, "tasks.max": placeholder, "config.providers": "x"}, **providers)
    assert infos.errors() == [
        "Invalid value for configuration 'tasks.max': the value resolved from the config provider "
        "reference failed validation"
    ]
    assert infos.error_count == 1
    assert value(infos, "tasks.max").value == placeholder
    assert "geheim" not in repr(infos)


def test_connectors_without_or_of_unknown_class_are_bad_requests() -> None:
    with pytest.raises(BadRequestError, match="Connector config contains no connector type"):
        check({"name": "a"})
    with pytest.raises(
        BadRequestError,
        match="Failed to find any class that implements Connector and which name matc",
    ):
        check({**SINK, "connector.class": "Nope"})


def test_refused_configuration_answer_contains_all_error_texts() -> None:
    infos = check({**SINK, "topics": ""})
    assert error_message(infos) == (
        "Connector configuration is invalid and contains the following 2 error(s):\n"
        "Must configure one of topics or topics.regex\n"
        "Must configure one of topics or topics.regex\n"
        "You can also find the above list of errors at the endpoint "
        "`/connector-plugins/{connectorType}/config/validate`"
    )


def test_every_text_of_a_refused_configuration_names_its_key() -> None:
    infos = check(
        {
            **SINK,
            "demo.x": None,
            "transforms": "t",
            "transforms.t.type": "Insert",
            "transforms.t.size": "x",
        }
    )
    told = error_message(infos).splitlines()
    assert "demo.x: Null value can not be supplied as the configuration value." in told
    assert any(
        text.startswith("transforms.t.size: Invalid value x for configuration size")
        for text in told
    ), told


def test_plugin_configuration_lists_its_own_keys_first() -> None:
    keys = validator().plugin_config("DemoSink", None)
    assert [key.name for key in keys] == ["demo.x", *COMMON, *SINK_KEYS]
    assert next(key for key in keys if key.name == "key.converter").default_value is None
    assert (
        next(key for key in keys if key.name == "connector.plugin.version").default_value == "1.0"
    )
    assert [key.name for key in validator().plugin_config("Insert", "1.0")] == ["field", "size"]
    with pytest.raises(NotFoundError, match=r"Unknown plugin demosink\."):
        validator().plugin_config("demosink", None)
    with pytest.raises(
        BadRequestError,
        match=r"Plugin com.example.Insert not found that matches the version range \[2,2\]",
    ):
        validator().plugin_config("Insert", "2")
    with pytest.raises(BadRequestError, match=r"Invalid version specification: \[1"):
        validator().plugin_config(DEMO_SINK, "[1")
