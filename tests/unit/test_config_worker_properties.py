"""Worker properties: Java's keys, defaults and words."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from connect_py.api.errors import ConfigError
from connect_py.config.override_policy import OverridePolicy
from connect_py.config.properties_file import read_properties
from connect_py.config.worker_config import DistributedConfig

PROPS = {
    "bootstrap.servers": "a:9092,b:9092",
    "group.id": "g",
    "key.converter": "org.apache.kafka.connect.json.JsonConverter",
    "value.converter": "org.apache.kafka.connect.json.JsonConverter",
    "config.storage.topic": "c",
    "status.storage.topic": "s",
    "offset.storage.topic": "o",
}


def test_worker_property_defaults_equal_those_of_java() -> None:
    config = DistributedConfig.of(PROPS)
    assert config.bootstrap_servers == "a:9092,b:9092"
    assert config["offset.flush.interval.ms"] == 60_000
    assert config["listeners"] == ["http://:8083"]
    assert config["header.converter"].endswith("SimpleHeaderConverter")
    assert [config.storage_topic(s).partitions for s in ("config", "status", "offset")] == [
        1,
        5,
        25,
    ]
    assert config.storage_topic("offset").settings == {"cleanup.policy": "compact"}
    assert config.control_topic().name == "g-control"
    assert config.client_id_prefix == "g-"
    assert DistributedConfig.of({**PROPS, "client.id": "x"}).client_id_prefix == "g-x-"


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"bootstrap.servers": " "}, "No resolvable bootstrap urls given in bootstrap.servers"),
        (
            {"group.id": None},
            'Missing required configuration "group.id" which has no default value.',
        ),
        ({"config.storage.topic": " "}, "Must specify topic for connector configuration."),
        ({"status.storage.topic": ""}, "Must specify topic for connector status."),
        ({"offset.storage.topic": ""}, "Offset storage topic must be specified"),
        (
            {"offset.storage.partitions": "0"},
            "Invalid value 0 for configuration offset.storage.partitions: ",
        ),
        (
            {"status.storage.replication.factor": "-2"},
            "Invalid value -2 for configuration status.storage.replication",
        ),
        (
            {"offset.flush.interval.ms": "soon"},
            "Invalid value soon for configuration offset.flush.interval.ms: Not a ",
        ),
        ({"listeners": ""}, "Invalid value "),
        ({"plugin.path": "${env:X}"}, "Config providers can not be used in plugin.path"),
        ({"status.storage.topic": "c"}, "must have different names"),
        (
            {"inter.worker.signature.algorithm": "HmacMD5"},
            "must be present in inter.worker.verification.algorithms",
        ),
        (
            {"heartbeat.interval.ms": "10000"},
            "Heartbeat must be set lower than the session timeout",
        ),
        (
            {"connector.client.config.override.policy": "com.example.Mine"},
            "Class com.example.Mine could not be found.",
        ),
        ({"connect.protocol": "new"}, "Invalid Connect protocol compatibility"),
    ],
)
def test_bad_properties_are_refused_in_javas_words(
    change: dict[str, str | None], text: str
) -> None:
    props = {key: value for key, value in {**PROPS, **change}.items() if value is not None}
    with pytest.raises(ConfigError) as refused:
        DistributedConfig.of(props)
    assert text in str(refused.value)


def test_override_policies_are_known_by_short_and_by_class_name() -> None:
    name = "org.apache.kafka.connect.connector.policy.NoneConnectorClientConfigOverridePolicy"
    assert OverridePolicy.of({"connector.client.config.override.policy": name}).name == "None"
    for policy in ("All", "Allowlist", name):
        DistributedConfig.of({**PROPS, "connector.client.config.override.policy": policy})


def test_storage_settings_reach_the_topic_except_the_fixed_ones() -> None:
    more = {
        "config.storage.partitions": "7",
        "status.storage.segment.bytes": "1000",
        "status.storage.cleanup.policy": "delete",
        "offset.storage.replication.factor": "-1",
    }
    config = DistributedConfig.of({**PROPS, **more})
    assert config.storage_topic("config").partitions == 1
    assert config.storage_topic("status").settings == {
        "segment.bytes": "1000",
        "cleanup.policy": "compact",
    }
    assert config.storage_topic("offset").replication_factor == -1


def test_kafka_settings_are_those_without_a_client_prefix() -> None:
    more = {
        "security.protocol": "SSL",
        "producer.linger.ms": "5",
        "sasl.mechanism": "PLAIN",
        "some.thing": "kept",
    }
    config = DistributedConfig.of({**PROPS, **more})
    assert config.kafka_settings() == {
        "bootstrap.servers": "a:9092,b:9092",
        "security.protocol": "SSL",
        "sasl.mechanism": "PLAIN",
    }
    assert config.unknown == ("some.thing",)
    assert config.props["some.thing"] == "kept"


def test_secret_worker_properties_are_hidden_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    DistributedConfig.of(
        {**PROPS, "ssl.key.password": "geheim", "config.storage.partitions": "2"}
    ).log_values()
    assert "ssl.key.password = [hidden]" in caplog.text
    assert "geheim" not in caplog.text
    assert "ignoring worker property config.storage.partitions" in caplog.text


def test_properties_files_are_read_with_the_syntax_of_java(tmp_path: Path) -> None:
    file = tmp_path / "worker.properties"
    file.write_bytes(
        b"# comment\n! too\ngroup.id : g\nname=a\\u00e9 \\\n   b\nlatin=\xe9\nname2 x\nname2=y\n"
    )
    assert read_properties(file) == {"group.id": "g", "name": "aé b", "latin": "é", "name2": "y"}


def test_worker_file_may_use_its_own_providers(tmp_path: Path) -> None:
    secrets = tmp_path / "secrets.properties"
    secrets.write_text("password=geheim\n")
    more = {
        "config.providers": "file",
        "config.providers.file.class": "org.apache.kafka.common.config.provider.FileConfigProvider",
        "ssl.key.password": f"${{file:{secrets}:password}}",
    }
    config = DistributedConfig.of({**PROPS, **more})
    assert config["ssl.key.password"].value == "geheim"
