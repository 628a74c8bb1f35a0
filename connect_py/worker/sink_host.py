"""`CommandSinkHost`: provides a command with a connector's Kafka cluster and shared services."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Final

from connect_py.api.record import OffsetAndMetadata, TopicPartition
from connect_py.kafka.client_config import ClientConfigs
from connect_py.kafka.cluster_admin import ClusterAdmin
from connect_py.secret_mask import hidden_in
from connect_py.task.pipeline_factory import TaskPipelineFactory
from connect_py.task.sink.kafka_sink_cluster import KafkaSinkCluster
from connect_py.task.topic_selection import TopicSelection
from connect_py.worker.local_services import LocalServices

_BELOW_WORKERS: Final = -(2**52)  # remains negative after adding the milliseconds since 1970


def _start_number() -> int:
    """Return a start number that is lower than any worker's and higher than any earlier command's.

    A start number identifies one start of a connector's tasks. Because the numbers differ, a run of
    a command is never confused with the tasks on a worker or with another run.
    """
    return _BELOW_WORKERS + time.time_ns() // 1_000_000


class CommandSinkHost(KafkaSinkCluster, LocalServices):
    """Implements `connect_py.api.sink_host.SinkHost`.

    The services are stopped at the end of the `with` block.
    """

    def __init__(self, connector: Mapping[str, str], worker: Mapping[str, str]) -> None:
        """Create the host from resolved configurations. Sends no requests."""
        name = connector["name"]
        self._configs = ClientConfigs(worker, connector, name, 0)
        self._alter = ClusterAdmin(self._configs.admin())
        self._selection = TopicSelection(connector)
        KafkaSinkCluster.__init__(
            self, name, _start_number(), self._configs, self._alter, self._selection
        )
        LocalServices.__init__(self, name, worker)
        secrets = hidden_in([*connector.values(), *worker.values()])
        self.pipelines = TaskPipelineFactory(dict(connector), dict(worker), secrets=secrets)

    def consumer_properties(self) -> Mapping[str, str]:
        settings = self._configs.consumer_properties()
        if self._selection.has_replays:
            settings["isolation.level"] = "read_committed"  # as in the tasks' consumers
        return settings

    def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        self._alter.alter_group_offsets(self.group_id, offsets)
