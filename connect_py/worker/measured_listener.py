"""`MeasuredListener`: a worker listener that updates the worker's metrics."""

from __future__ import annotations

from connect_py.metrics.worker_metrics import WorkerMetrics
from connect_py.model import ConnectorTaskId, State, Waiting
from connect_py.storage.status_table import StatusId
from connect_py.worker.worker_listener import WorkerListener


class MeasuredListener:
    """Implements `WorkerListener` by updating the metrics and then forwarding the event."""

    def __init__(self, listener: WorkerListener, metrics: WorkerMetrics) -> None:
        self._listener = listener
        self._metrics = metrics

    def on_state(self, id: StatusId, state: State, trace: str | None = None) -> None:  # noqa: A002 - named as in Kafka Connect
        if state is State.UNASSIGNED:
            self._metrics.forget(id)
        else:
            self._metrics.became(id, state.value.lower())
        self._listener.on_state(id, state, trace)

    def on_waiting(self, id: StatusId, waiting: Waiting | None) -> None:  # noqa: A002 - named as in Kafka Connect
        self._metrics.waits(id, waiting)
        self._listener.on_waiting(id, waiting)

    def on_warnings(self, id: ConnectorTaskId, warnings: tuple[str, ...]) -> None:  # noqa: A002 - named as in Kafka Connect
        self._listener.on_warnings(id, warnings)

    def on_topic_used(self, id: ConnectorTaskId, topic: str) -> None:  # noqa: A002 - named as in Kafka Connect
        self._listener.on_topic_used(id, topic)

    def on_stop_requested(self, id: ConnectorTaskId, start_number: int, reason: str) -> None:  # noqa: A002 - named as in Kafka Connect
        self._listener.on_stop_requested(id, start_number, reason)

    def on_reconfiguration_requested(self, name: str) -> None:
        self._listener.on_reconfiguration_requested(name)
