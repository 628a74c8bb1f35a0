"""`Rows`: definitions and values of the config keys in a validated configuration."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from connect_py.api.config import ConfigKey, ConfigValue, Type, to_text
from connect_py.herder.herder import Config, ConfigInfo, ConfigInfos, ConfigKeyInfo, ConfigValueInfo


@dataclass(slots=True)
class Rows:
    """Ordered definitions and values of config keys. A key may lack a definition or a value."""

    keys: dict[str, ConfigKey] = field(default_factory=dict)
    values: dict[str, ConfigValue] = field(default_factory=dict)

    def add(self, key: ConfigKey, value: ConfigValue) -> None:
        self.keys[key.name] = key
        self.values[key.name] = value

    def error(self, name: str, text: str) -> None:
        self.values.setdefault(name, ConfigValue(name)).errors.append(text)

    def count(self) -> int:
        return sum(len(value.errors) for value in self.values.values())

    def keys_with_errors(self) -> int:
        return sum(1 for value in self.values.values() if value.errors)


def config_infos(
    class_name: str, parts: Sequence[Rows], count: int, raw: Config, redacted: Iterable[str]
) -> ConfigInfos:
    """Return the response to a validation request.

    Keys without a definition precede keys with a definition. For the keys in `redacted`, the
    response contains the unresolved placeholder instead of the value.
    """
    hidden = set(redacted)
    without_definition = [
        ConfigInfo(None, _value_info(value, None, raw, hidden))
        for name, value in parts[0].values.items()
        if name not in parts[0].keys
    ]
    with_definition: list[ConfigInfo] = []
    for part in parts:
        with_definition += [
            ConfigInfo(key_info(key), _value_info(part.values[name], key.type, raw, hidden))
            for name, key in part.keys.items()
        ]
        if part is not parts[0]:
            with_definition += [
                ConfigInfo(None, _value_info(value, None, raw, hidden))
                for name, value in part.values.items()
                if name not in part.keys
            ]
    configs = [*without_definition, *with_definition]
    groups = dict.fromkeys(key.group for part in parts for key in part.keys.values() if key.group)
    if any(
        info.value is not None and info.value.name in hidden and info.value.errors
        for info in configs
    ):
        count = sum(len(info.value.errors) for info in configs if info.value is not None)
    return ConfigInfos(class_name, count, list(groups), configs)


def key_info(key: ConfigKey) -> ConfigKeyInfo:
    """Return a key definition as it appears in responses."""
    return ConfigKeyInfo(
        key.name,
        key.type.value,
        not key.has_default,
        to_text(key.default, key.type),
        key.importance.value,
        key.doc,
        key.group,
        key.order_in_group,
        key.width.value,
        key.display_name or key.name,
        list(key.dependents),
    )


def _value_info(
    value: ConfigValue, kind: Type | None, raw: Config, redacted: set[str]
) -> ConfigValueInfo:
    if value.name in redacted:
        errors = [redacted_error(value.name)] if value.errors else []
        return ConfigValueInfo(value.name, raw[value.name], [], errors, value.visible)
    recommended_values = [
        to_text(item, kind or Type.STRING) or "" for item in value.recommended_values
    ]
    return ConfigValueInfo(
        value.name,
        to_text(value.value, kind or Type.STRING),
        recommended_values,
        list(value.errors),
        value.visible,
    )


def redacted_error(name: str) -> str:
    """Return the error message for an invalid value from a config provider, without the value."""
    return (
        f"Invalid value for configuration '{name}': the value resolved from the config provider "
        "reference failed validation"
    )


def without_prefix(props: Config, prefix: str) -> dict[str, str | None]:
    """Return the properties whose keys start with a prefix, and remove the prefix."""
    return {key[len(prefix) :]: value for key, value in props.items() if key.startswith(prefix)}
