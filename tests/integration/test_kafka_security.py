"""Java's security settings against a broker that wants TLS and a login, by each kind of client."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from kafka_security import JAVA_SECURITY, USER, USER_PASSWORD, SecureBroker, Stores, token_endpoint
from rest_certificates import Authority

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
    consumer = Consumer(translate({**props, "group.id": topic, "auto.offset.reset": "earliest"}, "consumer"))
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
    login = f'{JAVA_SECURITY}.{module} required username="{USER}" password="{escaped(USER_PASSWORD)}";'
    props = {
        "bootstrap.servers": broker.login_servers, "security.protocol": "SASL_SSL", "sasl.mechanism": mechanism,
        "sasl.jaas.config": login, **stores.trust(trust),
    }  # fmt: skip
    assert round_trip(props) == b"hello"


def test_a_login_with_a_token_of_an_endpoint(broker: SecureBroker, stores: Stores) -> None:
    with token_endpoint("connect", "token-secret") as url:
        props = {
            "bootstrap.servers": broker.login_servers, "security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER",
            "sasl.oauthbearer.token.endpoint.url": url,
            "sasl.login.callback.handler.class": f"{JAVA_SECURITY}.oauthbearer.OAuthBearerLoginCallbackHandler",
            "sasl.jaas.config": (
                f"{JAVA_SECURITY}.oauthbearer.OAuthBearerLoginModule required "
                'clientId="connect" clientSecret="token-secret" scope="kafka";'
            ),
            **stores.trust("text"),
        }  # fmt: skip
        assert round_trip(props) == b"hello"


@pytest.mark.parametrize("kind", ["JKS", "PKCS12", "PEM", "text"])
def test_a_certificate_of_the_client_from_each_kind_of_key_store(
    broker: SecureBroker, stores: Stores, kind: str
) -> None:
    props = {
        "bootstrap.servers": broker.certificate_servers, "security.protocol": "SSL", **stores.trust("PEM"),
        **stores.own(kind),
    }  # fmt: skip
    assert round_trip(props) == b"hello"
