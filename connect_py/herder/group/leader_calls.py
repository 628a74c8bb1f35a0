"""`LeaderCalls`: interface for HTTP requests to the leader. The REST layer implements it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, TypeAlias

Signer: TypeAlias = Callable[[bytes], Mapping[str, str]]  # returns signature headers for a body


class LeaderCalls(Protocol):
    """Sends requests to the leader. Thread-safe. Calls wait for the response, with a timeout."""

    def put_task_configs(
        self, url: str, connector: str, configs: Sequence[Mapping[str, str]], sign: Signer
    ) -> None:
        """Request that the leader at this advertised URL publish task configurations.

        Raises:
            ConnectError: The leader cannot be reached, or it rejected the request. In the latter
                case, the error contains the leader's message.
        """

    def request_stop(
        self, url: str, connector: str, start_number: int, reason: str, sign: Signer
    ) -> None:
        """Request that the leader stop a connector on behalf of a task.

        Raises the same errors as `put_task_configs`.
        """

    def fence_zombies(self, url: str, connector: str, sign: Signer) -> None:
        """Request that the leader fence the producers of a connector's older source tasks.

        Raises the same errors as `put_task_configs`.
        """
