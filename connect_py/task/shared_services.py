"""`WorkerSharedServices`: how a task or a connector, in its process, asks the worker for shared
services."""

from __future__ import annotations

from collections.abc import Mapping

from connect_py.api.service import WAIT_SECONDS, ServiceAddress, SharedService
from connect_py.task.messages import AcquireService, ReleaseService, RequestService
from connect_py.task.questions import STOPPING_SECONDS, Questions


class WorkerSharedServices:
    """Satisfies `connect_py.api.service.SharedServices`; see there for threads and errors."""

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
        question = AcquireService(self._questions.next_number(), service, broken, timeout_seconds)
        found: ServiceAddress = self._questions.ask_patiently(question, STOPPING_SECONDS)
        return found

    def request_shared_service(self, service: SharedService) -> None:
        self._questions.send(RequestService(service))

    def release_shared_service(self, service: SharedService) -> None:
        self._questions.send(ReleaseService(service))

    def worker_settings(self, prefix: str) -> Mapping[str, str]:
        return {key: value for key, value in self._worker_props.items() if key.startswith(prefix)}
