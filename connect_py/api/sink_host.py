"""`SinkHost`: what a command that does the work of a sink's tasks gets, in place of a worker."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from connect_py.api.cluster import SinkCluster
from connect_py.api.pipeline import PipelineFactory
from connect_py.api.record import OffsetAndMetadata, TopicPartition
from connect_py.api.service import SharedServices


class SinkHost(SinkCluster, SharedServices, Protocol):
    """The cluster of a connector that is stopped, and shared services.

    Its start number is negative: below every worker's, and above that of each command before.
    """

    @property
    def pipelines(self) -> PipelineFactory:
        """The connector's record pipelines."""

    def consumer_properties(self) -> Mapping[str, str]:
        """The settings of the tasks' consumers in Java's words, for a consumer in Java."""

    def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Set the group's offsets, all in one request.

        Raises: RetriableError: The cluster does not answer. ConnectError: The cluster refuses, as
            it does while the group has members: then tasks of the connector run.
        """
