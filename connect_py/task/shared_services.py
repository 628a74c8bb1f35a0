"""`WorkerSharedServices`: requests of a task or connector process for shared services of the
worker.
"""

from __future__ import annotations

from collections.abc import Mapping

from connect_py.api.service import WAIT_SECONDS, ServiceAddress, SharedService
from connect_py.task.messages import AcquireService, ReleaseService, RequestService
from connect_py.task.questions import STOPPING_SECONDS, Questions


class WorkerSharedServices:
    """Implements `connect_py.api.service.SharedServices`; see there for threading and errors."""

    def __init__(self, questions: Questions, worker_props: Mapping[str, str]) -> None:
        self._questions = questions
        self._worker_props = worker_props

    def shared_service(
        self,
        service: SharedService,
        *,
        broken: int | None = None,
        timeout_seconds: float = WAIT_SECONDS,
    ) -> ServiceAddress:
        request = AcquireService(self._questions.next_number(), service, broken, timeout_seconds)
        address: ServiceAddress = self._questions.ask_patiently(request, STOPPING_SECONDS)
        return address

    def request_shared_service(self, service: SharedService) -> None:
        self._questions.send(RequestService(service))

    def release_shared_service(self, service: SharedService) -> None:
        self._questions.send(ReleaseService(service))

    def worker_settings(self, prefix: str) -> Mapping[str, str]:
        return {key: value for key, value in self._worker_props.items() if key.startswith(prefix)}
