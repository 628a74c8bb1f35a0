"""Config providers: where the values of placeholders `${provider:path:key}` come from."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Set
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class ConfigData:
    """What a provider knows of one path."""

    # key -> value; what is not found is left out
    data: Mapping[str, str] = field(default_factory=dict)
    ttl_ms: int | None = None  # how long the values hold, in milliseconds; None: for ever


class ConfigProvider(ABC):
    """Looks up values outside of configurations. Made and configured once by the worker, before
    anything else.

    A worker property `config.providers.<name>.class` names it as `module:Class`; it runs in the
    worker's own process, so it imports little and answers soon. Values are secrets: they belong in
    no log line and no error.
    """

    def configure(self, params: Mapping[str, str]) -> None:
        """Take the properties below `config.providers.<name>.param.`; ConfigError when they are
        wrong."""

    @abstractmethod
    def get(self, path: str, keys: Set[str]) -> ConfigData:
        """Return the values of these keys. Called on any thread, several at once.

        With a time to live the worker asks again when it is over, and restarts connectors whose
        values have changed.

        Raises:
            ConfigError: The path cannot be read; the connector or task that needs it fails.
        """
