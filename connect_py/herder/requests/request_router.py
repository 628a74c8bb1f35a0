"""`RequestRouter`: decides which worker, and which of its threads, processes a request."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

from connect_py.storage.status_table import StatusId

T = TypeVar("T")


class RequestRouter(ABC):
    """Runs an action where it belongs.

    The result of the action, or of the future that it returns, completes the returned future.
    """

    @abstractmethod
    def ping(self) -> Future[None]:
        """Complete on the herder's thread when this worker can process requests."""

    @abstractmethod
    def submit_to_leader(self, action: Callable[[], T | Future[T]]) -> Future[T]:
        """Run an action on the thread that changes the config topic.

        Errors: RequestTargetError if another worker leads the group.
        """

    @abstractmethod
    def submit_to_owner(self, item: StatusId, action: Callable[[], T | Future[T]]) -> Future[T]:
        """Run an action if this worker runs the connector or task, or if the item does not exist.

        Errors: RequestTargetError if another worker runs it.
        """
