"""`RequestRouter`: determines which worker and which thread process a request."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

from connect_py.storage.status_table import StatusId

T = TypeVar("T")


class RequestRouter(ABC):
    """Runs actions on the responsible thread, if this worker is responsible for them.

    The returned futures complete with the result of the action, or with the result of the future
    that the action returns.
    """

    @abstractmethod
    def ping(self) -> Future[None]:
        """Return a future that the herder's thread completes when it can process requests."""

    @abstractmethod
    def submit_to_leader(self, action: Callable[[], T | Future[T]]) -> Future[T]:
        """Run an action on the thread that changes the config topic.

        Errors: RequestTargetError if another worker leads the group.
        """

    @abstractmethod
    def submit_to_owner(self, item: StatusId, action: Callable[[], T | Future[T]]) -> Future[T]:
        """Run an action if this worker runs `item`, or if no such connector or task exists.

        Errors: RequestTargetError if another worker runs the item.
        """
