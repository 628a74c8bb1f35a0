from __future__ import annotations

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient

from connect_py.api.errors import ConfigError
from connect_py.java.jaas_config import parse_jaas
from connect_py.kafka.client_config import ClientConfigs, translate
from connect_py.task.sink.sink_loop import LoopSettings


def configs(
    worker: dict[str, str] | None = None, connector: dict[str, str] | None = None
) -> ClientConfigs:
    return ClientConfigs(
        {"bootstrap.servers": "b:1", **(worker or {})}, connector or {}, "orders", 3
    )


def test_sink_consumer_has_the_ids_and_defaults_of_java() -> None:
    settings = configs().consumer()
    expected = {
        "bootstrap.servers": "b:1",
        "group.id": "connect-orders",
        "client.id": "connector-consumer-orders-3",
        "auto.offset.reset": "earliest",
        "enable.auto.commit": "false",
        "enable.auto.offset.store": False,
        "isolation.level": "read_uncommitted",
        "partition.assignment.strategy": "range",
        "allow.auto.create.topics": True,
        "fetch.queue.backoff.ms": 20,
        "queued.max.messages.kbytes": 16_384,
        "connections.max.idle.ms": 540_000,
        "receive.message.max.bytes": 2**31 - 1,
    }
    assert expected.items() <= settings.items()


def test_a_source_producer_keeps_order_as_connect_does() -> None:
    settings = configs().producer()
    assert settings["enable.idempotence"] == "false"
    assert settings["max.in.flight.requests.per.connection"] == "1"
    assert settings["acks"] == "all"
    assert settings["delivery.timeout.ms"] == str(2**31 - 1)
    assert settings["partitioner"] == "murmur2_random"


def test_connector_overrides_win_over_worker_prefix_and_base_settings() -> None:
    worker = {
        "consumer.fetch.min.bytes": "5",
        "consumer.group.id": "w",
        "consumer.session.timeout.ms": "7000",
    }
    connector = {"consumer.override.group.id": "mine", "consumer.override.fetch.min.bytes": "9"}
    both = configs(worker, connector)
    settings = both.consumer()
    assert settings["fetch.min.bytes"] == "9"
    assert settings["session.timeout.ms"] == "7000"
    assert settings["group.id"] == both.group_id() == "mine"
    assert configs(worker).group_id() == configs(worker).consumer()["group.id"] == "w"


def test_the_workers_plain_security_reaches_admin_clients_and_not_consumers() -> None:
    worker = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "request.timeout.ms": "40000",
    }
    assert configs(worker).admin()["security.protocol"] == "SASL_SSL"
    assert "security.protocol" not in configs(worker).consumer()
    assert "security.protocol" not in configs(worker).producer()
    prefixed = {"consumer.security.protocol": "SSL", "producer.security.protocol": "SSL"}
    assert configs(prefixed).consumer()["security.protocol"] == "SSL"
    assert configs(prefixed).dead_letter_producer()["security.protocol"] == "SSL"


@pytest.mark.parametrize(
    ("policy", "refused"),
    [
        ({}, set()),
        ({"connector.client.config.override.policy": "None"}, {"sasl.mechanism", "acks"}),
        ({"connector.client.config.override.policy": "Principal"}, {"acks"}),
        (
            {
                "connector.client.config.override.policy": "Allowlist",
                "connector.client.config.override.allowlist": "acks, linger.ms",
            },
            {"sasl.mechanism"},
        ),
    ],
)
def test_overrides_stored_under_another_policy_are_refused_at_start(
    policy: dict[str, str], refused: set[str]
) -> None:
    for key, value in {"sasl.mechanism": "PLAIN", "acks": "1"}.items():
        made = configs(policy, {f"producer.override.{key}": value})
        if key in refused:
            with pytest.raises(
                ConfigError, match=f"policy does not allow '{key}' to be overridden"
            ):
                made.producer()
        else:
            assert made.producer()[key] == value


def test_a_plugins_own_client_gets_no_id_and_no_group() -> None:
    settings = configs().of("consumer")
    assert settings["bootstrap.servers"] == "b:1"
    assert not {"client.id", "group.id"} & settings.keys()


def test_every_layer_is_accepted_by_the_client_library() -> None:
    Producer(configs().producer()).flush(0)
    AdminClient(configs().admin())
    Consumer(configs().consumer()).close()


@pytest.mark.parametrize(
    ("key", "value", "kind", "expected"),
    [
        ("fetch.max.wait.ms", "300", "consumer", {"fetch.wait.max.ms": "300"}),
        ("max.request.size", "2000000", "producer", {"message.max.bytes": "2000000"}),
        ("buffer.memory", "1048576", "producer", {"queue.buffering.max.kbytes": 1024}),
        ("send.buffer.bytes", "-1", "consumer", {"socket.send.buffer.bytes": 0}),
        (
            "metadata.max.age.ms",
            "1000",
            "admin",
            {"topic.metadata.refresh.interval.ms": 1000, "metadata.max.age.ms": 3000},
        ),
        ("auto.offset.reset", "none", "consumer", {"auto.offset.reset": "error"}),
        (
            "ssl.endpoint.identification.algorithm",
            "",
            "consumer",
            {"ssl.endpoint.identification.algorithm": "none"},
        ),
        (
            "partition.assignment.strategy",
            "org.apache.kafka.clients.consumer.CooperativeStickyAssignor",
            "consumer",
            {"partition.assignment.strategy": "cooperative-sticky"},
        ),
        (
            "partition.assignment.strategy",
            "org.apache.kafka.clients.consumer.RangeAssignor,org.apache.kafka.clients.consumer.CooperativeStickyAssignor",
            "consumer",
            {"partition.assignment.strategy": "range"},
        ),
        (
            "partitioner.class",
            "org.apache.kafka.clients.producer.RoundRobinPartitioner",
            "producer",
            {"partitioner": "random"},
        ),
        (
            "ssl.cipher.suites",
            "TLS_AES_128_GCM_SHA256, TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",
            "admin",
            {"ssl.cipher.suites": "ECDHE-RSA-AES256-GCM-SHA384"},
        ),
        ("compression.zstd.level", "4", "producer", {"compression.level": "4"}),
    ],
)
def test_java_client_setting_is_translated_for_the_client_library(
    key: str, value: str, kind: str, expected: dict[str, object]
) -> None:
    settings = translate({key: value}, kind)  # type: ignore[arg-type] # one of the three kinds
    assert expected.items() <= settings.items()


@pytest.mark.parametrize(
    "key",
    [
        "ssl.protocol",
        "metrics.num.samples",
        "interceptor.classes",
        "key.deserializer",
        "no.such.key",
        "linger.ms",
    ],
)
def test_a_setting_without_meaning_for_a_consumer_never_reaches_it(key: str) -> None:
    assert key not in translate({key: "1"}, "consumer")


@pytest.mark.parametrize("value", ["foo", "", "LATEST", "by_duration:P1D", "by_duration"])
def test_unknown_offset_reset_value_is_refused_with_the_accepted_ones(value: str) -> None:
    with pytest.raises(
        ConfigError, match=r"auto\.offset\.reset: .*expected earliest, latest, or none"
    ):
        configs({}, {"consumer.override.auto.offset.reset": value}).consumer()


@pytest.mark.parametrize("value", ["earliest", "latest", "smallest", "largest", "beginning", "end"])
def test_a_beginning_may_be_in_the_words_of_the_client(value: str) -> None:
    assert translate({"auto.offset.reset": f" {value} "}, "consumer")["auto.offset.reset"] == value


@pytest.mark.parametrize("value", ["classic", "CLASSIC"])
def test_the_classic_group_protocol_is_the_only_one(value: str) -> None:
    assert "group.protocol" not in configs({"consumer.group.protocol": value}).consumer()
    assert "group.remote.assignor" not in translate(
        {"group.remote.assignor": "uniform"}, "consumer"
    )


@pytest.mark.parametrize("value", ["consumer", "CONSUMER", ""])
def test_another_group_protocol_is_refused_by_name(value: str) -> None:
    for asked in (
        configs({"consumer.group.protocol": value}),
        configs({}, {"consumer.override.group.protocol": value}),
    ):
        with pytest.raises(
            ConfigError, match=r"group\.protocol.* is not supported: expected classic"
        ):
            asked.consumer()


def test_a_plain_login_becomes_user_and_password() -> None:
    text = (
        "org.apache.kafka.common.security.plain.PlainLoginModule required "
        'username="al\\"ice" password=\'s e;c\' serviceName=x;'
    )
    settings = translate({"sasl.jaas.config": text}, "consumer")
    assert settings["sasl.username"] == 'al"ice'
    assert settings["sasl.password"] == "s e;c"


def test_oauth_login_of_java_is_translated_to_oidc() -> None:
    text = (
        "x.OAuthBearerLoginModule required clientId='a' clientSecret='b' scope='c' "
        "extension_logicalCluster='lkc';"
    )
    settings = translate({"sasl.jaas.config": text}, "admin")
    assert settings["sasl.oauthbearer.method"] == "oidc"
    assert settings["sasl.oauthbearer.client.id"] == "a"
    assert settings["sasl.oauthbearer.extensions"] == "logicalCluster=lkc"


def test_oauth_settings_of_newer_clients_need_no_jaas_options() -> None:
    props = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.token.endpoint.url": "https://idp/token",
        "sasl.oauthbearer.jwt.retriever.class": "org.apache.kafka.common.security.oauthbearer.JwtBearerJwtRetriever",  # noqa: E501 - one literal
        "sasl.oauthbearer.assertion.private.key.file": "/key.pem",
        "sasl.oauthbearer.assertion.template.file": "/claims.json",
        "sasl.oauthbearer.jwks.endpoint.url": "https://idp/keys",
    }
    settings = translate(props, "admin")
    assert settings["sasl.oauthbearer.method"] == "oidc"
    assert settings["sasl.oauthbearer.grant.type"] == "urn:ietf:params:oauth:grant-type:jwt-bearer"
    assert settings["sasl.oauthbearer.assertion.jwt.template.file"] == "/claims.json"
    assert (
        not {"sasl.oauthbearer.jwks.endpoint.url", "sasl.oauthbearer.assertion.template.file"}
        & settings.keys()
    )
    AdminClient({"bootstrap.servers": "127.0.0.1:1", "log_level": 0, **settings})


def test_unsecured_tokens_for_trying_out_are_made_by_the_library() -> None:
    text = "x.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub='me';"
    settings = translate({"sasl.mechanism": "OAUTHBEARER", "sasl.jaas.config": text}, "producer")
    assert settings["enable.sasl.oauthbearer.unsecure.jwt"] is True
    assert settings["sasl.oauthbearer.config"] == "principal=me"
    assert "sasl.oauthbearer.method" not in settings


@pytest.mark.parametrize(
    ("props", "named"),
    [
        # Java's default mechanism
        ({"security.protocol": "SASL_PLAINTEXT"}, "sasl.mechanism: GSSAPI"),
        ({"sasl.mechanism": "AWS_MSK_IAM"}, "sasl.mechanism: AWS_MSK_IAM"),
        (
            {"sasl.client.callback.handler.class": "com.example.Mine"},
            "sasl.client.callback.handler.class: com.exa",
        ),
        (
            {"sasl.login.callback.handler.class": "com.example.Mine"},
            "sasl.login.callback.handler.class: com.exa",
        ),
        (
            {
                "sasl.jaas.config": "com.sun.security.auth.module.Krb5LoginModule required "
                "keyTab='topsecret';"
            },
            "sasl.jaas.config: the login module com.sun.security.auth.module.Krb5LoginModule",
        ),
        (
            {
                "sasl.jaas.config": "software.amazon.msk.auth.iam.IAMLoginModule required "
                "p='topsecret';"
            },
            "sasl.jaas.config: the login module software.amazon.msk.auth.iam.IAMLoginModule",
        ),
    ],
)
def test_java_only_login_error_names_an_alternative_without_secrets(
    props: dict[str, str], named: str
) -> None:
    with pytest.raises(ConfigError, match="use OAUTHBEARER with ") as refused:
        translate(props, "admin")
    assert str(refused.value).startswith(named)
    assert "topsecret" not in str(refused.value)


def test_a_login_that_cannot_be_read_shows_no_secret() -> None:
    with pytest.raises(ConfigError) as refused:
        parse_jaas('PlainLoginModule required username="u" password="topsecret"')
    assert "topsecret" not in str(refused.value)


def test_metadata_age_says_how_often_topics_are_matched() -> None:
    worker = {"consumer.metadata.max.age.ms": "60000"}
    assert configs(worker).topics_interval_ms() == 60_000
    assert (
        configs(worker, {"consumer.override.metadata.max.age.ms": "3000"}).topics_interval_ms()
        == 3_000
    )
    # of the worker's own clients
    assert configs({"metadata.max.age.ms": "7000"}).topics_interval_ms() is None
    assert LoopSettings.of({}, None, 3_000).topics_interval_ms == 3_000
    assert LoopSettings.of({}, None).topics_interval_ms == 300_000


def test_max_poll_records_is_the_size_of_our_polls() -> None:
    assert configs({"consumer.max.poll.records": "50"}).max_poll_records() == 50
    assert configs().max_poll_records() is None


def test_ineffective_client_setting_is_logged_once_per_process(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("connect_py.kafka.client_config._logged_settings", set())
    caplog.set_level("INFO")
    for kind in ("consumer", "admin", "consumer"):
        translate({"max.poll.records": "9", "max.block.ms": "1", "max.blok.ms": "1"}, kind)
    assert caplog.messages == [  # and nothing of max.poll.records, which the worker obeys
        "ignoring client setting max.block.ms, which has no effect",
        "ignoring unknown client setting max.blok.ms",
    ]
