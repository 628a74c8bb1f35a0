"""Validates the client overrides in a connector configuration."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from connect_py.api.config import ConfigKey, ConfigValue, Parsed, parse
from connect_py.api.errors import ConfigError
from connect_py.api.plugin import Plugin, PluginKind
from connect_py.config.client_definitions import client_config_keys
from connect_py.config.override_policy import OverridePolicy
from connect_py.config.worker_config import WorkerConfig
from connect_py.herder.herder import Config
from connect_py.herder.validation.validation_rows import Rows, redacted_error, without_prefix
from connect_py.kafka.security_settings import refuse_logins_of_java


def override_rows(
    config: WorkerConfig, plugin: Plugin, props: Config, redacted: Collection[str]
) -> Rows:
    """Return the definitions and values of the client overrides that apply to a connector.

    Raises:
        ConfigError: A value has the wrong type. Java also fails in this case.
    """
    sink = plugin.kind is PluginKind.SINK
    has_own_offset_topic = config.exactly_once_sources or "offsets.storage.topic" in props
    creates_topics = "topic.creation.default.replication.factor" in props
    dead_letters = bool((props.get("errors.deadletterqueue.topic.name") or "").strip())
    prefixes = []
    if not sink or dead_letters:
        prefixes.append("producer.override.")
    if sink or has_own_offset_topic:
        prefixes.append("consumer.override.")
    if dead_letters if sink else has_own_offset_topic or creates_topics:
        prefixes.append("admin.override.")
    rows, policy = Rows(), OverridePolicy.of(config.props)
    for prefix in prefixes:
        definitions = client_config_keys(prefix.partition(".")[0])
        for name, value in props.items():
            if name.startswith(prefix):
                key = definitions.get(name[len(prefix) :])
                if key is None:
                    rows.values[name] = ConfigValue(name, value)
                else:
                    rows.add(
                        _under(prefix, key), ConfigValue(name, _of_type(key, name, value, redacted))
                    )
                problem = policy.refusal(name[len(prefix) :])
                if problem is not None:
                    rows.error(name, problem)
        _refuse_logins(rows, prefix, props, redacted)
    return rows


def _refuse_logins(rows: Rows, prefix: str, props: Config, redacted: Collection[str]) -> None:
    """Add errors for login methods that only Java clients support."""
    try:
        refuse_logins_of_java(
            {
                key: value
                for key, value in without_prefix(props, prefix).items()
                if value is not None
            }
        )
    except ConfigError as error:
        name = prefix + error.key
        rows.error(
            name,
            redacted_error(name) if name in redacted else str(error).replace(error.key, name, 1),
        )


def _under(prefix: str, key: ConfigKey) -> ConfigKey:
    return replace(key, name=prefix + key.name, display_name=key.display_name or key.name)


def _of_type(key: ConfigKey, name: str, value: str | None, redacted: Collection[str]) -> Parsed:
    """Parse the value of a client override. Errors never contain values from config providers."""
    try:
        return parse(key.name, value, key.type)
    except ConfigError as error:
        raise (ConfigError("", redacted_error(name)) if name in redacted else error) from None
