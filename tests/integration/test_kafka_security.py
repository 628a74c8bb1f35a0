"""Java's security settings against a broker that wants TLS and a login, by each kind of client."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from kafka_security import (
    JAVA_SECURITY,
    STORE_PASSWORD,
    USER,
    USER_PASSWORD,
    SecureBroker,
    Stores,
    token_endpoint,
)
from rest_certificates import Authority
from worker_process import WorkerProcess

from connect_py.kafka.client_config import translate

SECONDS = 30.0


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Stores:
    return Stores(tmp_path_factory.mktemp("stores"), Authority.make())


@pytest.fixture(scope="module")
def broker(stores: Stores) -> Iterator[SecureBroker]:
    with SecureBroker(stores.folder, stores.authority) as started:
        started.add_user()
        yield started


def round_trip(props: dict[str, str]) -> bytes | None:
    """Make a topic, write to it and read it, by clients of these settings."""
    topic = f"secure-{uuid.uuid4().hex[:8]}"
    admin = AdminClient(translate(props, "admin"))
    for future in admin.create_topics([NewTopic(topic, 1, 1)], request_timeout=SECONDS).values():
        future.result(SECONDS)
    producer = Producer(translate(props, "producer"))
    producer.produce(topic, b"hello")
    assert producer.flush(SECONDS) == 0
    consumer = Consumer(
        translate({**props, "group.id": topic, "auto.offset.reset": "earliest"}, "consumer")
    )
    try:
        consumer.subscribe([topic])
        message = consumer.poll(SECONDS)
        assert message is not None
        assert message.error() is None, message.error()
        return message.value()
    finally:
        consumer.close()


def escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')


@pytest.mark.parametrize(
    ("mechanism", "module", "trust"),
    [
        ("PLAIN", "plain.PlainLoginModule", "JKS"),
        ("SCRAM-SHA-256", "scram.ScramLoginModule", "PKCS12"),
        ("SCRAM-SHA-512", "scram.ScramLoginModule", "PEM"),
    ],
)
def test_logins_with_a_password_over_tls(
    broker: SecureBroker, stores: Stores, mechanism: str, module: str, trust: str
) -> None:
    login = (
        f'{JAVA_SECURITY}.{module} required username="{USER}" password="{escaped(USER_PASSWORD)}";'
    )
    props = {
        "bootstrap.servers": broker.login_servers,
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": mechanism,
        "sasl.jaas.config": login,
        **stores.trust(trust),
    }
    assert round_trip(props) == b"hello"


def test_a_login_with_a_token_of_an_endpoint(broker: SecureBroker, stores: Stores) -> None:
    with token_endpoint("connect", "token-secret") as url:
        props = {
            "bootstrap.servers": broker.login_servers,
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.oauthbearer.token.endpoint.url": url,
            "sasl.login.callback.handler.class": f"{JAVA_SECURITY}.oauthbearer.OAuthBearerLoginCallbackHandler",  # noqa: E501 - one literal
            "sasl.jaas.config": (
                f"{JAVA_SECURITY}.oauthbearer.OAuthBearerLoginModule required "
                'clientId="connect" clientSecret="token-secret" scope="kafka";'
            ),
            **stores.trust("text"),
        }
        assert round_trip(props) == b"hello"


@pytest.mark.parametrize("kind", ["JKS", "PKCS12", "PEM", "text"])
def test_client_certificate_works_from_each_kind_of_key_store(
    broker: SecureBroker, stores: Stores, kind: str
) -> None:
    props = {
        "bootstrap.servers": broker.certificate_servers,
        "security.protocol": "SSL",
        **stores.trust("PEM"),
        **stores.own(kind),
    }
    assert round_trip(props) == b"hello"


@pytest.mark.timeout(400)  # a broker and a worker's process on a busy machine
def test_worker_takes_secrets_from_config_provider_and_hides_them(
    broker: SecureBroker, stores: Stores, tmp_path: Path
) -> None:
    login = (
        f'{JAVA_SECURITY}.plain.PlainLoginModule required username="{USER}" '
        f'password="{escaped(USER_PASSWORD)}";'
    )
    secrets = tmp_path / "secrets.properties"
    in_file = login.replace("\\", "\\\\")  # as properties files want it
    secrets.write_text(f"login={in_file}\nstore={STORE_PASSWORD}\n")
    trust = stores.trust("JKS") | {"ssl.truststore.password": f"${{file:{secrets}:store}}"}
    security = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": f"${{file:{secrets}:login}}",
        **trust,
    }
    strings = "org.apache.kafka.connect.storage.StringConverter"
    worker = WorkerProcess(
        tmp_path / "worker",
        broker.login_servers,
        "secured",
        {
            "config.providers": "file",
            "config.providers.file.class": "org.apache.kafka.common.config.provider.FileConfigProvider",  # noqa: E501 - one literal
            "config.providers.file.param.allowed.paths": str(tmp_path),
            "key.converter": strings,
            "value.converter": strings,
            **{
                f"{prefix}{key}": value
                for prefix in ("", "producer.")
                for key, value in security.items()
            },
        },
    )
    source, copy = tmp_path / "in.txt", tmp_path / "out.txt"
    source.write_text("one\n")
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    admin.create_topics([NewTopic("lines", 1, 1)])["lines"].result(SECONDS)
    try:
        worker.start()
        answers = [
            worker.put(
                "source",
                {"connector.class": "FileStreamSource", "file": str(source), "topic": "lines"},
            ),
            worker.put(
                "sink",
                {
                    "connector.class": "FileStreamSink",
                    "file": str(copy),
                    "topics": "lines",
                    **{f"consumer.override.{key}": value for key, value in security.items()},
                },
            ),
        ]
        worker.wait_until(
            lambda: copy.exists() and copy.read_text() == "one\n", 60, "the line in the copy"
        )
        answers += [
            worker.get("/connectors?expand=info&expand=status"),
            worker.get("/connectors/sink/tasks"),
        ]
        assert worker.stop() == 0
    finally:
        worker.close()
    reader = Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": "look",
            "auto.offset.reset": "earliest",
        }
    )
    try:
        reader.subscribe(["secured-config"])
        kept = []
        while (message := reader.poll(5)) is not None:
            kept.append(message.value() or b"")
    finally:
        reader.close()
    said = f"{answers}{b''.join(kept).decode()}{worker.log_path.read_text()}"
    # where the configuration is shown, it is as it was written
    assert f"${{file:{secrets}:login}}" in said
    for secret in (USER_PASSWORD, escaped(USER_PASSWORD), STORE_PASSWORD):
        assert secret not in said
