"""Configurations of clients, converters, and executors in commands that do a worker's work."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from connect_py import cli
from connect_py.api.errors import ConfigError
from connect_py.config.command_config import worker_properties
from connect_py.secret_mask import masked
from connect_py.task.pipeline_factory import TaskPipelineFactory

LOGIN = """bootstrap.servers=127.0.0.1:1
security.protocol=SASL_PLAINTEXT
sasl.mechanism=PLAIN
sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required \\
  username="${env:KAFKA_USER}" password="p";
config.providers=env
config.providers.env.class=EnvVarConfigProvider
"""
CONNECTOR = {
    "name": "sink",
    "connector.class": "org.apache.iceberg.connect.IcebergSinkConnector",
    "topics": "a",
    "key.converter": "org.apache.kafka.connect.storage.StringConverter",
    "value.converter": "org.apache.kafka.connect.json.JsonConverter",
}


@pytest.fixture
def worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("KAFKA_USER", "loader-of-lakes")
    file = tmp_path / "worker.properties"
    file.write_text(LOGIN)
    yield file
    if logging.lastResort is not None:
        logging.lastResort.setFormatter(None)


def test_kafka_clients_of_a_command_get_values_of_providers(worker: Path) -> None:
    parts = cli.worker_parts()
    with parts.sink_host(CONNECTOR, worker, {}) as host:
        assert host.client_config("admin")["sasl.username"] == "loader-of-lakes"
        assert isinstance(host.pipelines, TaskPipelineFactory)
        assert host.pipelines.secrets == ("loader-of-lakes",)
    pipelines = parts.pipelines(CONNECTOR, worker)
    assert isinstance(pipelines, TaskPipelineFactory)
    assert "loader-of-lakes" in pipelines.worker["sasl.jaas.config"]
    assert worker_properties(None) == {}


def test_value_that_a_workers_file_lacks_is_refused(
    worker: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KAFKA_USER")
    with pytest.raises(ConfigError, match=r"^sasl\.jaas\.config: the config provider "):
        worker_properties(worker)


def test_executors_mask_what_config_providers_gave() -> None:
    TaskPipelineFactory(CONNECTOR, {}, secrets=("of-the-executor",)).open().close()
    assert masked("it is of-the-executor") == "it is [hidden]"


def test_warnings_of_commands_hide_what_providers_gave(worker: Path) -> None:
    worker_properties(worker)
    assert logging.lastResort is not None
    record = logging.LogRecord(
        "a", logging.WARNING, "", 1, "%s is away", ("loader-of-lakes",), None
    )
    assert logging.lastResort.format(record) == "[hidden] is away"
