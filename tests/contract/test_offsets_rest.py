"""`/connectors/{c}/offsets` as HTTP clients see it, and offsets of sinks as users write them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from fake_herder import FakeHerder

from connect_py.api.record import TopicPartition
from connect_py.herder.herder import BadRequestError
from connect_py.herder.requests.sink_offsets import parse_sink_offsets
from connect_py.model import ConnectorOffset
from rest.app import create_app
from rest.server import Listener, RestServer, Site

J = {"Content-Type": "application/json"}
URL = "/connectors/a/offsets"


@pytest.fixture
def herder() -> FakeHerder:
    return FakeHerder()


@pytest.fixture
def client(herder: FakeHerder) -> Iterator[httpx.Client]:
    server = RestServer([(Site([Listener("127.0.0.1", 0)]), create_app(herder))])
    server.start()
    with httpx.Client(
        base_url=f"http://127.0.0.1:{server.addresses[0].port}", timeout=20
    ) as client:
        yield client
    server.stop()


def patched(client: httpx.Client, body: str, name: str = "a") -> tuple[int, str]:
    response = client.patch(f"/connectors/{name}/offsets", content=body, headers=J)
    return response.status_code, response.json()["message"]


def test_offsets_are_listed_in_connects_form(client: httpx.Client, herder: FakeHerder) -> None:
    assert client.get(URL).json() == {"offsets": []}
    herder.offsets = [
        ConnectorOffset({"kafka_partition": 0, "kafka_topic": "t"}, {"kafka_offset": 5})
    ]
    assert client.get(URL).text == (
        '{"offsets":[{"partition":{"kafka_partition":0,"kafka_topic":"t"},"offset":{"kafka_offset":5}}]}'
    )
    assert client.get("/connectors/zz/offsets").status_code == 404


def test_offset_request_keeps_value_types_and_the_last_duplicate_partition(
    client: httpx.Client, herder: FakeHerder
) -> None:
    body = (
        '{"offsets":[{"partition":{"a":1,"b":"x"},"offset":{"at":1}},'
        '{"partition":{"b":"x","a":1},"offset":{"at":2.5,"s":"7","n":null,"t":true}},{"partition":{"a":2}}]}'
    )
    assert patched(client, body) == (200, "altered")
    assert herder.offsets == [
        ConnectorOffset({"a": 1, "b": "x"}, {"at": 2.5, "s": "7", "n": None, "t": True}),
        ConnectorOffset({"a": 2}, None),
    ]
    assert client.delete(URL).json() == {"message": "reset"}


@pytest.mark.parametrize(
    ("body", "status", "begin"),
    [
        (
            '{"offsets":[]}',
            400,
            "Partitions / offsets need to be provided for an alter offsets request",
        ),
        ('{"offsets":null}', 400, "Partitions / offsets need to be provided"),
        ("{}", 400, "Partitions / offsets need to be provided"),
        ('{"offsets":{}}', 500, "Cannot deserialize value of type"),
        ('{"offsets":""}', 500, "Cannot deserialize value of type"),
        ('{"offsets":[null]}', 500, "Cannot invoke"),
        ('{"offsets":[[]]}', 500, "Cannot deserialize value of type"),
        ('{"offsets":[{"partition":[]}]}', 500, "Cannot deserialize value of type"),
        ('{"offsets":[{"partition":{},"offset":1}]}', 500, "Cannot deserialize value of type"),
        ('{"offsets":[{"partition":{},"x":1}]}', 500, 'Unrecognized field "x"'),
        ('{"offsets":[{"partition":{}}],"x":1}', 500, 'Unrecognized field "x"'),
        ("", 500, "Cannot invoke"),
    ],
)
def test_malformed_offset_request_is_refused_before_the_connector_lookup(
    client: httpx.Client, body: str, status: int, begin: str
) -> None:
    found, message = patched(client, body, "zz")
    assert (found, message[: len(begin)]) == (status, begin)


def test_offsets_of_unknown_connector_are_404_and_of_another_leader_409(
    client: httpx.Client, herder: FakeHerder
) -> None:
    body = '{"offsets":[{"partition":{}}]}'
    assert patched(client, body, "zz") == (404, "Connector zz not found")
    herder.leader_url = ""
    assert client.patch(f"{URL}?forward=false", content=body, headers=J).status_code == 409
    assert client.delete("/connectors/zz/offsets?forward=false").status_code == 409
    assert (
        client.patch(f"{URL}?forward=false", content='{"offsets":[]}', headers=J).status_code == 400
    )


def at(topic: Any, partition: Any, offset: Any) -> ConnectorOffset:
    return ConnectorOffset(
        {"kafka_topic": topic, "kafka_partition": partition}, {"kafka_offset": offset}
    )


def test_sink_offsets_accept_numbers_as_text_and_scalar_topics() -> None:
    parsed = parse_sink_offsets(
        [
            at("t", 0, 5),
            at("t", "1", "7"),
            at(8, "+2", "-1"),
            at("t", 0, 6),
            ConnectorOffset(at("t", 3, 0).partition, None),
        ]
    )
    assert parsed == {
        TopicPartition("t", 0): 6,
        TopicPartition("t", 1): 7,
        TopicPartition("8", 2): -1,
        TopicPartition("t", 3): None,
    }


@pytest.mark.parametrize(
    ("entry", "text"),
    [
        (
            ConnectorOffset(None, None),
            "The partition for a sink connector offset cannot be null or missing",
        ),
        (
            ConnectorOffset({"kafka_topic": "t"}, None),
            "The partition for a sink connector offset must contain the keys 'kafka_topic' and "
            "'kafka_partition'",
        ),
        (at(None, 0, 1), "Kafka topic names must be valid strings and may not be null"),
        (at("t", None, 1), "Kafka partitions must be valid numbers and may not be null"),
        (
            at("t", 2**31, 1),
            "Failed to parse the following Kafka partition value in the provided offsets: "
            "'2147483648'. Partition values for sink connectors need to be integers.",
        ),
        (
            ConnectorOffset(at("t", 0, 0).partition, {}),
            "The offset for a sink connector should either be null or contain the key "
            "'kafka_offset'",
        ),
        (
            at("t", 0, None),
            "Failed to parse the following Kafka offset value in the provided offsets: 'null'. "
            "Offset values for sink connectors need to be integers.",
        ),
        (
            at("t", 0, 1.5),
            "Failed to parse the following Kafka offset value in the provided offsets: '1.5'. "
            "Offset values for sink connectors need to be integers.",
        ),
    ],
)
def test_invalid_sink_offset_is_refused_with_the_message_of_connect(
    entry: ConnectorOffset, text: str
) -> None:
    with pytest.raises(BadRequestError) as refused:
        parse_sink_offsets([entry])
    assert str(refused.value) == text
