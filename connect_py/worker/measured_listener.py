"""`MeasuredListener`: a worker's listener that also keeps the worker's measurements."""

from __future__ import annotations

from connect_py.metrics.worker_metrics import WorkerMetrics
from connect_py.model import ConnectorTaskId, Waiting
from connect_py.worker.worker_listener import WorkerListener


class MeasuredListener:
    """Satisfies `WorkerListener`: counts, then passes everything on."""

    def __init__(self, listener: WorkerListener, metrics: WorkerMetrics) -> None:
        self._listener = listener
        self._metrics = metrics

    def on_connector_startup(self, name: str) -> None:
        self._metrics.became(name, "running")
        self._listener.on_connector_startup(name)

    def on_connector_pause(self, name: str) -> None:
        self._metrics.became(name, "paused")
        self._listener.on_connector_pause(name)

    def on_connector_resume(self, name: str) -> None:
        self._metrics.became(name, "running")
        self._listener.on_connector_resume(name)

    def on_connector_stop(self, name: str) -> None:
        self._metrics.became(name, "stopped")
        self._listener.on_connector_stop(name)

    def on_connector_failure(self, name: str, trace: str) -> None:
        self._metrics.became(name, "failed")
        self._listener.on_connector_failure(name, trace)

    def on_connector_waiting(self, name: str, waiting: Waiting | None) -> None:
        self._metrics.waits(name, waiting)
        self._listener.on_connector_waiting(name, waiting)

    def on_connector_shutdown(self, name: str) -> None:
        self._metrics.forget(name)
        self._listener.on_connector_shutdown(name)

    def on_connector_restart(self, name: str) -> None:
        self._metrics.became(name, "restarting")
        self._listener.on_connector_restart(name)

    def on_task_startup(self, id: ConnectorTaskId) -> None:  # noqa: A002 - Connect's word
        self._metrics.became(id, "running")
        self._listener.on_task_startup(id)

    def on_task_pause(self, id: ConnectorTaskId) -> None:  # noqa: A002 - Connect's word
        self._metrics.became(id, "paused")
        self._listener.on_task_pause(id)

    def on_task_resume(self, id: ConnectorTaskId) -> None:  # noqa: A002 - Connect's word
        self._metrics.became(id, "running")
        self._listener.on_task_resume(id)

    def on_task_failure(self, id: ConnectorTaskId, trace: str) -> None:  # noqa: A002 - Connect's word
        self._metrics.became(id, "failed")
        self._listener.on_task_failure(id, trace)

    def on_task_waiting(self, id: ConnectorTaskId, waiting: Waiting | None) -> None:  # noqa: A002 - Connect's word
        self._metrics.waits(id, waiting)
        self._listener.on_task_waiting(id, waiting)

    def on_task_shutdown(self, id: ConnectorTaskId) -> None:  # noqa: A002 - Connect's word
        self._metrics.forget(id)
        self._listener.on_task_shutdown(id)

    def on_task_restart(self, id: ConnectorTaskId) -> None:  # noqa: A002 - Connect's word
        self._metrics.became(id, "restarting")
        self._listener.on_task_restart(id)

    def on_topic_used(self, id: ConnectorTaskId, topic: str) -> None:  # noqa: A002 - Connect's word
        self._listener.on_topic_used(id, topic)

    def on_reconfiguration_requested(self, name: str) -> None:
        self._listener.on_reconfiguration_requested(name)
