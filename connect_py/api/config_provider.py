"""Config providers, which return the values of placeholders `${provider:path:key}`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Set
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class ConfigData:
    """Values of a provider for one path."""

    # values by key, without missing keys
    data: Mapping[str, str] = field(default_factory=dict)
    ttl_ms: int | None = None  # time for which the values are valid; None: unlimited


class ConfigProvider(ABC):
    """Looks up configuration values in another system.

    The worker creates and configures each provider once, before anything else. The worker property
    `config.providers.<name>.class` contains its class as `module:Class`. It runs in the worker's
    process; therefore, it must import few modules and respond quickly. Values are secrets, and must
    not appear in logs and errors.
    """

    def configure(self, params: Mapping[str, str]) -> None:
        """Receive the properties `config.providers.<name>.param.*` without their prefix.

        Raises:
            ConfigError: A property is invalid.
        """

    @abstractmethod
    def get(self, path: str, keys: Set[str]) -> ConfigData:
        """Return the values of these keys. Thread-safe; called concurrently.

        If the result has a time to live, the worker requests the values again when it has expired,
        and restarts connectors whose values have changed.

        Raises:
            ConfigError: The path cannot be read; the connector or task that needs it fails.
        """
