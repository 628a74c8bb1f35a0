"""Properties of workers and clients compared with recordings of Java's, 4.1.1: definitions and
messages of refused values.

The recordings were created by `tests/fixtures/worker_properties/RecordWorkerProperties.java`.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient

from connect_py.api.config import ConfigDef, to_text
from connect_py.api.errors import ConfigError
from connect_py.config.client_definitions import client_config_keys
from connect_py.config.worker_config import DistributedConfig
from connect_py.config.worker_definitions import distributed_config_def, standalone_config_def
from connect_py.kafka.client_config import Kind, translate
from rest.response_headers import header_rules

RECORDINGS = Path(__file__).parent.parent / "fixtures" / "worker_properties"
JSON_CONVERTER = "org.apache.kafka.connect.json.JsonConverter"
PROPS = {
    "bootstrap.servers": "a:9092",
    "key.converter": JSON_CONVERTER,
    "value.converter": JSON_CONVERTER,
    "group.id": "g",
    "config.storage.topic": "c",
    "status.storage.topic": "s",
    "offset.storage.topic": "o",
}
OURS_ALONE = {
    "connector.client.config.override.allowlist",  # Kafka Connect 4.2
    "internal.topics.automatic.creation.enable",  # 4.4
    "control.storage.topic",
}
REFUSED_HERE_ALONE = {
    "bootstrap.servers": "Java's clients refuse it a moment later",
    "config.storage.topic": "Java's stores refuse it a moment later",
    "status.storage.topic": "Java's stores refuse it a moment later",
    "offset.storage.topic": "Java's stores refuse it a moment later",
    "connector.client.config.override.policy": "Java's worker refuses it a moment later",
    "session.timeout.ms": "Java refuses it when it joins the group",
    "heartbeat.interval.ms": "Java refuses it when it joins the group",
    "rest.extension.classes": "Java fails to load it",
    "config.providers": "Java lets a provider without a class pass, and every placeholder with it",
}


def lines(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (RECORDINGS / name).read_text().splitlines()]


@pytest.mark.parametrize(
    ("mode", "definition"),
    [
        ("distributed", distributed_config_def()),
        ("standalone", standalone_config_def()),
        *(
            (kind, ConfigDef(client_config_keys(kind).values()))
            for kind in ("producer", "consumer", "admin")
        ),
    ],
)
def test_every_key_of_java_is_defined_alike(mode: str, definition: ConfigDef) -> None:
    java = {
        line["name"]: line
        for line in lines("definitions.jsonl")
        if line["mode"] == mode and not line["name"].startswith("internal.")
    }
    ours = {
        key.name: {
            "mode": mode,
            "name": key.name,
            "type": key.type.value,
            "importance": key.importance.value,
            "required": not key.has_default,
            **({"default": to_text(key.default, key.type)} if key.has_default else {}),
        }
        for key in definition
        if key.name not in OURS_ALONE and not key.name.startswith("connect_py.")
    }
    assert ours == java


def test_worker_refuses_invalid_property_values_with_the_messages_of_java() -> None:
    wrong = []
    for line in lines("refusals.jsonl"):
        props = {
            key: value for key, value in {**PROPS, **line["change"]}.items() if value is not None
        }
        try:
            # which REST reads
            header_rules(DistributedConfig.of(props)["response.http.headers.config"])
            said = None
        except ConfigError as error:
            said = str(error)
        expected = line["error"]
        if expected is None and REFUSED_HERE_ALONE.keys() & line["change"].keys():
            continue
        if (
            expected is not None
            and "the supported algorithms are:" in expected
            and said is not None
        ):
            said = said.partition("; the")[0].replace("this worker", "this JVM")
            expected = expected.partition("; the")[0]
        if said != expected:
            wrong.append((line["change"], expected, said))
    assert not wrong, "\n".join(
        f"{change}: expected {java!r}, found {ours!r}" for change, java, ours in wrong
    )


@pytest.mark.parametrize(
    ("kind", "make"), [("admin", AdminClient), ("producer", Producer), ("consumer", Consumer)]
)
def test_explicit_java_defaults_make_a_client_without_any_warning(
    kind: Kind, make: Callable[[Any], Any], caplog: pytest.LogCaptureFixture
) -> None:
    defaults = {
        line["name"]: line["default"]
        for line in lines("definitions.jsonl")
        if line["mode"] == "distributed" and line.get("default") is not None
    }
    config = DistributedConfig.of({**defaults, **PROPS, "bootstrap.servers": "127.0.0.1:1"})
    with caplog.at_level(logging.WARNING):
        settings = translate({**config.kafka_settings(), "group.id": "g"}, kind)
    assert caplog.text == ""
    client = make({**settings, "log_level": 0})
    if kind == "consumer":
        client.close()
