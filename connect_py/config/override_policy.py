"""Worker policy for the client settings that connectors may override."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final, Self

from connect_py.api.config import Type, parse

POLICIES: Final = ("All", "None", "Principal", "Allowlist")
POLICY_KEY: Final = "connector.client.config.override.policy"
ALLOWLIST_KEY: Final = "connector.client.config.override.allowlist"
_PRINCIPAL: Final = ("sasl.jaas.config", "sasl.mechanism", "security.protocol")


@dataclass(frozen=True, slots=True)
class OverridePolicy:
    """An override policy with its short name. `allowed` is None if all settings are allowed."""

    name: str
    allowed: Collection[str] | None

    @classmethod
    def of(cls, worker_props: Mapping[str, str]) -> Self:
        """Return the policy that validated worker properties specify."""
        name = short_name(worker_props.get(POLICY_KEY, "All"))
        allowed_by_policy = {
            "None": (),
            "Principal": _PRINCIPAL,
            "Allowlist": tuple(
                parse(ALLOWLIST_KEY, worker_props.get(ALLOWLIST_KEY, ""), Type.LIST)
            ),
        }
        return cls(name, allowed_by_policy.get(name))

    def refusal(self, key: str) -> str | None:
        """Return the error message if a client setting must not be overridden, otherwise None.

        The message is the same as in Java Kafka Connect.
        """
        if self.allowed is None or key in self.allowed:
            return None
        return (
            f"The '{self.name}' policy does not allow '{key}' to be overridden in the connector "
            f"configuration."
        )


def short_name(policy: str) -> str:
    """Return the short name, such as `None` for `...NoneConnectorClientConfigOverridePolicy`."""
    short = policy.strip().rpartition(".")[2]
    return short.removesuffix("ConnectorClientConfigOverridePolicy") or short
