"""Kafka client settings of the sink's commands."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from connect_py.api.errors import ConfigError
from connect_py.api.sink_host import SinkHost
from connectors.iceberg_tools.commands.kafka_options import KafkaOptions


class Host:
    """Settings that a connector inherits from its worker."""

    def client_config(self, kind: str) -> dict[str, Any]:
        assert kind == "admin"
        return {
            "bootstrap.servers": "worker:9093",
            "security.protocol": "ssl",
            "client.id": "worker",
        }


HOST = cast("SinkHost", Host())


def test_options_win_over_the_file_which_wins_over_the_worker(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("# ours\nclient.id=file\nclient.rack = a\n")
    assert KafkaOptions().settings(HOST) == Host().client_config("admin")
    assert KafkaOptions("other:9093", ["client.rack=b"], file).settings(HOST) == {
        "bootstrap.servers": "other:9093",
        "security.protocol": "ssl",
        "client.id": "file",
        "client.rack": "b",
    }


def test_missing_address_of_kafka_names_both_options(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no Kafka cluster.* --bootstrap-server .* --worker"):
        KafkaOptions(kafka_property=["client.id=mine"]).settings()
    file = tmp_path / "client.properties"
    file.write_text("bootstrap.servers=here:9092")
    assert KafkaOptions(client_config=file).settings() == {"bootstrap.servers": "here:9092"}
