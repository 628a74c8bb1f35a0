"""Tables whose commits go through Spark Connect: the methods of `LakeClient`, by a JVM of the coordinator's own."""

from __future__ import annotations

from connectors.iceberg.config import IcebergSinkConfig
from connectors.iceberg.spark.catalog import TableCatalog
from connectors.iceberg.spark.commit_request import CommitOutcome, CommitRequest, EngineName
from connectors.iceberg.spark.committer import TableCommitter
from connectors.iceberg.spark.session import SparkConfig, SparkDriver


class ConnectLake(TableCatalog):
    """Owns the JVM and the connection to the server."""

    def __init__(self, config: IcebergSinkConfig) -> None:
        spark = SparkConfig(
            config.catalog_name, config.catalog, config.hadoop_settings(), config.spark, config.quick_jvm
        )
        self._own = SparkDriver(spark)
        super().__init__(self._own)
        self._committer = TableCommitter(
            self._own,
            self,
            EngineName.AUTO if config.commit_engine.value == EngineName.DELTA.value else EngineName.MERGE,
            refuse_foreign_rows=config.foreign_writers.value == "refuse",
            deadline_seconds=config.commit_attempt_timeout_ms / 1000,
            write_props=config.write_props,
        )

    def request(self) -> None:
        """The JVM starts with the first call."""

    def alive(self) -> bool:
        return self._own.alive()

    def start(self) -> None:
        self._own.restart()

    def stop(self) -> None:
        self._own.stop()

    def set_properties(self, name: str, properties: dict[str, str]) -> None:
        raise NotImplementedError("a table behind Spark Connect keeps its properties")

    def commit(self, request: CommitRequest) -> CommitOutcome:
        return self._committer.commit(request)
