"""`connect-py doctor` and `connect-py kafka` on a real broker."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from fixtures.command_line import connect_py_program
from lakehouse import Lakehouse
from typer.testing import CliRunner, Result

from connect_py.embedded.broker import KafkaBroker

STRING = "org.apache.kafka.connect.storage.StringConverter"


def worker_file(folder: Path, servers: str, prefix: str, replication: int = 1) -> Path:
    settings = {
        "bootstrap.servers": servers,
        "group.id": f"{prefix}g",
        "listeners": "http://127.0.0.1:0",
        "key.converter": STRING,
        "value.converter": STRING,
    }
    for storage in ("config", "status", "offset"):
        settings[f"{storage}.storage.topic"] = f"{prefix}{storage}"
        settings[f"{storage}.storage.replication.factor"] = str(replication)
    path = folder / "worker.properties"
    path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    return path


def doctor(*words: str) -> tuple[int, dict[str, tuple[str, str]]]:
    """Return the exit status, and the verdict and message by subject."""
    result = CliRunner().invoke(connect_py_program(), ["doctor", *words, "--json"])
    rows = json.loads(result.stdout)["findings"]
    return result.exit_code, {row["subject"]: (row["verdict"], row["text"]) for row in rows}


def test_doctor_finds_internal_topics_that_do_not_fit(
    kafka_broker: KafkaBroker, topic_prefix: str, tmp_path: Path
) -> None:
    admin = AdminClient({"bootstrap.servers": kafka_broker.bootstrap_servers})
    config, status, offset = (
        f"{topic_prefix}{storage}" for storage in ("config", "status", "offset")
    )
    compacted = {"cleanup.policy": "compact"}
    wrong = [
        NewTopic(config, 3, 1, config=compacted),
        NewTopic(status, 1, 1),
        NewTopic(offset, 5, 1, config=compacted),
    ]
    for future in admin.create_topics(wrong).values():
        future.result(30)
    connector = tmp_path / "lines.json"
    connector.write_text(
        json.dumps(
            {
                "name": "lines",
                "connector.class": "FileStreamSink",
                "topics": f"{topic_prefix}none,{offset}",
            }
        )
    )
    path = worker_file(tmp_path, kafka_broker.bootstrap_servers, topic_prefix, replication=3)
    exit_status, findings = doctor(str(path), str(connector))
    assert exit_status == 1
    assert findings["brokers"][0] == "ok"
    assert findings[f"topic {config}"] == (
        "fail",
        "config.storage.topic requires 1 partition but has 3",
    )
    assert findings[f"topic {status}"] == (
        "fail",
        "cleanup.policy is delete, not compact: state would be lost",
    )
    # of the connector; the worker's topics were checked earlier
    assert findings[f"topic {offset}"] == ("ok", "5 partitions")
    assert findings[f"topic {topic_prefix}g-control"][1].startswith(
        "would be created with 3 replicas"
    )
    assert findings[f"topic {topic_prefix}none"][0] == "warn"
    # the session's broker may not have had a group yet
    assert findings[f"group {topic_prefix}g"][0] in ("ok", "warn")
    assert findings["connector"] == ("ok", "FileStreamSinkConnector accepts the configuration")


@pytest.mark.long  # in every run: test_connector_is_checked_with_settings_of_the_worker
def test_doctor_reads_a_connector_as_the_worker_does(
    kafka_broker: KafkaBroker,
    topic_prefix: str,
    tmp_path: Path,
    spark_environment: Mapping[str, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The worker gives the catalog, allows a setting, and has a provider of values."""
    monkeypatch.setenv("DOCTORS_TABLE", "db.orders")
    catalog = Lakehouse(tmp_path / "lake").sink_config()
    path = worker_file(tmp_path, kafka_broker.bootstrap_servers, topic_prefix)
    with path.open("a") as properties:
        for key, value in catalog.items():
            properties.write(f"connect_py.defaults.{key}={value}\n")
        properties.write(
            "connect_py.spark.settings.allowed=iceberg.spark.driver.extraJavaOptions\nconfig.providers=env\n"
        )
        properties.write(
            "config.providers.env.class=org.apache.kafka.common.config.provider.EnvVarConfigProvider\n"
        )
    connector = tmp_path / "orders.json"
    settings = {
        "name": "orders",
        "connector.class": "org.apache.iceberg.connect.IcebergSinkConnector",
        "topics": "orders",
        "iceberg.tables": "${env:DOCTORS_TABLE}",
        "iceberg.spark.driver.extraJavaOptions": "-Da=b",
    }
    connector.write_text(json.dumps(settings))
    _, findings = doctor(str(path), str(connector))
    assert findings["connector"] == ("ok", "IcebergSinkConnector accepts the configuration")
    assert findings["catalog"] == ("ok", "lake is available; table [hidden] does not exist yet")
    assert findings["storage"][0] == "ok"
    monkeypatch.delenv("DOCTORS_TABLE")
    status, findings = doctor(str(path), str(connector))
    assert (status, findings["placeholders"][0]) == (1, "fail")
    assert "iceberg.tables" in findings["placeholders"][1]


@pytest.fixture
def servers(kafka_broker: KafkaBroker) -> tuple[str, str]:
    return "--bootstrap-servers", kafka_broker.bootstrap_servers


def kafka(*words: str, status: int = 0, typed: str | None = None) -> Result:
    result = CliRunner().invoke(connect_py_program(), ["kafka", *words], input=typed)
    assert result.exit_code == status, result.output
    return result


def test_records_written_line_by_line_are_printed_again(
    servers: tuple[str, str], topic_prefix: str
) -> None:
    topic = f"{topic_prefix}people"
    kafka("topics", "--create", topic, *servers)
    kafka("produce", topic, "--key-separator", ":", *servers, typed='1:{"a": 1}\n2:zwölf\n')
    assert kafka("consume", topic, *servers).stdout == '{"a": 1}\nzwölf\n'
    last = json.loads(kafka("consume", topic, "--newest", "1", "--json", *servers).stdout)
    assert (last["offset"], last["key"], last["value"], last["headers"]) == (1, "2", "zwölf", [])
    rows = [line.split() for line in kafka("topics", *servers).stdout.splitlines()]
    assert [topic, "1", "1", "2"] in rows
    assert (
        "no ':' between"
        in kafka("produce", topic, "--key-separator", ":", *servers, typed="x\n", status=1).stderr
    )
    assert "nowhere" in kafka("consume", f"{topic_prefix}nowhere", *servers, status=1).stderr
