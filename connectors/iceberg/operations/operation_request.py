"""`OperationRequest`: what an operation gets, and how it reads its arguments."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from connect_py.api.cluster import SinkCluster
from connect_py.api.errors import ConfigError
from connect_py.api.pipeline import PipelineFactory
from connect_py.api.service import SharedServices
from connectors.iceberg.config.sink_config import IcebergSinkConfig
from connectors.iceberg.config.spark_config import worker_spark_config
from connectors.iceberg.driver.lake_client import LakeClient
from connectors.iceberg.protocol.commit_request import MAIN


@dataclass(frozen=True, slots=True)
class OperationRequest:
    """A connector, the worker that it is asked on, and the JSON object of the request. Numbers are texts."""

    config: IcebergSinkConfig
    props: Mapping[str, str]
    services: SharedServices
    arguments: Mapping[str, Any]
    cluster: SinkCluster | None = None  # None: the operation was not asked through a worker
    pipelines: PipelineFactory | None = None

    @contextmanager
    def lake(self) -> Iterator[LakeClient]:
        """A session in the worker's Spark driver, for as long as the block takes."""
        spark = worker_spark_config(self.config, self.services.worker_settings)
        with LakeClient(self.services, spark, user=self.config.connector) as lake:
            yield lake

    def ref(self, table: str) -> str:
        """The branch that the connector commits to."""
        return self.config.table(table).commit_branch or MAIN

    def kafka(self) -> dict[str, Any]:
        """What a Kafka client needs to reach the cluster of the connector's topics."""
        if self.cluster is None:
            raise ConfigError("", "only a worker knows how to reach Kafka")
        return self.cluster.client_config("admin")

    def text(self, name: str) -> str:
        """An argument that must be there."""
        found = self.arguments.get(name)
        if not isinstance(found, str) or not found:
            raise ConfigError(name, "must be a text that is not empty")
        return found

    def text_or_none(self, name: str) -> str | None:
        return self.text(name) if self.arguments.get(name) is not None else None

    def count(self, name: str, default: int, most: int) -> int:
        """A number of things, from 1 to `most`."""
        found = self.arguments.get(name)
        if found is None:
            return default
        if not isinstance(found, str) or not found.isdecimal() or not 1 <= int(found) <= most:
            raise ConfigError(name, f"must be a number from 1 to {most}")
        return int(found)

    def flag(self, name: str) -> bool:
        found = self.arguments.get(name, False)
        if not isinstance(found, bool):
            raise ConfigError(name, "must be true or false")
        return found
