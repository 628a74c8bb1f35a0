"""Config providers, which resolve placeholders of the form `${provider:path:key}`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Set
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class ConfigData:
    """Values that a provider returns for one path."""

    # values by key; missing keys are omitted
    data: Mapping[str, str] = field(default_factory=dict)
    ttl_ms: int | None = None  # time for which the values are valid; None if unlimited


class ConfigProvider(ABC):
    """Looks up configuration values in another system.

    The worker creates and configures each provider once, before it does anything else. The worker
    property `config.providers.<name>.class` specifies its class as `module:Class`. A provider runs
    in the worker's process, so it must import few modules and respond quickly. Values are secrets
    and must not appear in logs or errors.
    """

    def configure(self, params: Mapping[str, str]) -> None:
        """Configure the provider with `config.providers.<name>.param.*`, without the prefix.

        Raises:
            ConfigError: A property is invalid.
        """

    @abstractmethod
    def get(self, path: str, keys: Set[str]) -> ConfigData:
        """Return the values of these keys. Called concurrently, so it must be thread-safe.

        If the result has a time to live, the worker requests the values again after it expires, and
        restarts the connectors whose values have changed.

        Raises:
            ConfigError: The path cannot be read. The connector or task that needs the value fails.
        """
