"""`SinkHost`: services for a command that does the work of a sink's tasks, in place of a worker."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from connect_py.api.cluster import SinkCluster
from connect_py.api.pipeline import PipelineFactory
from connect_py.api.record import OffsetAndMetadata, TopicPartition
from connect_py.api.service import SharedServices


class SinkHost(SinkCluster, SharedServices, Protocol):
    """The cluster of a stopped connector, and shared services.

    The start number is negative: lower than the start number of any worker, and higher than the
    start numbers of earlier commands.
    """

    @property
    def pipelines(self) -> PipelineFactory:
        """The record pipelines of the connector."""

    def consumer_properties(self) -> Mapping[str, str]:
        """Return the settings of the tasks' consumers, with the names of a Java client."""

    def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Set the offsets of the consumer group in one request.

        Raises:
            RetriableError: The cluster does not respond.
            ConnectError: The cluster rejects the request, for example because the group has
                members: tasks of the connector are running.
        """
