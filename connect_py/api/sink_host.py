"""Services for commands that do the work of sink tasks without a worker."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from connect_py.api.cluster import SinkCluster
from connect_py.api.pipeline import PipelineFactory
from connect_py.api.record import OffsetAndMetadata, TopicPartition
from connect_py.api.service import SharedServices


class SinkHost(SinkCluster, SharedServices, Protocol):
    """The Kafka cluster of a stopped connector, and shared services.

    The start number (`start_number`) is negative. It is lower than any start number that a worker
    uses and higher than the start numbers that earlier commands used.
    """

    @property
    def pipelines(self) -> PipelineFactory:
        """Creates record pipelines for the connector."""

    def consumer_properties(self) -> Mapping[str, str]:
        """Return the tasks' consumer settings, using the Java client's property names."""

    def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Commit offsets to the consumer group in one request.

        Raises:
            RetriableError: The cluster does not respond.
            ConnectError: The cluster rejects the request, for example because tasks of the
                connector are still members of the group.
        """
