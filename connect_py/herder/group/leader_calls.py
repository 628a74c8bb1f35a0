"""`LeaderCalls`: requests of a worker to the leader over HTTP. The REST layer implements them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, TypeAlias

Signer: TypeAlias = Callable[[bytes], Mapping[str, str]]  # returns the headers that sign a body


class LeaderCalls(Protocol):
    """Requests with a deadline. Thread-safe; each call waits for its response."""

    def put_task_configs(
        self, url: str, connector: str, configs: Sequence[Mapping[str, str]], sign: Signer
    ) -> None:
        """Have the leader at this advertised URL publish a task set.

        Raises:
            ConnectError: The leader rejected the request, with its message, or cannot be reached.
        """

    def request_stop(
        self, url: str, connector: str, start_number: int, reason: str, sign: Signer
    ) -> None:
        """Have the leader stop a connector, as requested by a task. Errors: as above."""

    def fence_zombies(self, url: str, connector: str, sign: Signer) -> None:
        """Have the leader fence the producers of older source tasks. Errors: as above."""
