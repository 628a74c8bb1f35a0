"""`TopicCreation`: the `topic.creation.*` rules of a source connector."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from connect_py.api.config import ConfigDef, ConfigValueError, Importance, Type, parse, with_prefix
from connect_py.api.errors import ConfigError
from connect_py.config.worker_definitions import check_partitions, check_replication_factor
from connect_py.task.topic_selection import java_regex

PREFIX: Final = "topic.creation."
GROUPS: Final = f"{PREFIX}groups"
DEFAULT: Final = "default"
OWN_KEYS: Final = ("include", "exclude", "partitions", "replication.factor")


@dataclass(frozen=True, slots=True)
class NewTopicRule:
    """Settings for new topics that match a group."""

    group: str  # group name
    partitions: int  # -1 means the broker's default
    replication_factor: int  # -1 means the broker's default
    settings: Mapping[str, str]  # additional topic configs


@dataclass(frozen=True, slots=True)
class _Group:
    include: re.Pattern[str]
    exclude: re.Pattern[str] | None
    rule: NewTopicRule

    def matches(self, topic: str) -> bool:
        return self.include.fullmatch(topic) is not None and not (
            self.exclude and self.exclude.fullmatch(topic)
        )


@dataclass(frozen=True, slots=True)
class TopicCreation:
    """Selects the first group that matches the entire topic name, or the default group."""

    groups: Sequence[_Group] = ()  # the last group is the default group, which matches every topic

    @classmethod
    def parse(cls, config: Mapping[str, str], *, enabled: bool = True) -> TopicCreation:
        """Parse a connector's configuration.

        If it contains no `topic.creation.*` key, the connector creates no topics.

        Args:
            config: Resolved configuration of the connector.
            enabled: The worker's `topic.creation.enable`.

        Raises:
            ConfigError: The default group is incomplete, or a number or a regular expression is
                invalid.
        """
        if not enabled or not any(key.startswith(PREFIX) for key in config):
            return cls()
        default = _numbers(DEFAULT, config, None)
        names = dict.fromkeys(parse(GROUPS, config.get(GROUPS, ""), Type.LIST))
        groups = []
        for name in names:
            if name != DEFAULT:
                settings = with_prefix(config, f"{PREFIX}{name}.")
                include, exclude = (_pattern(name, key, settings) for key in ("include", "exclude"))
                if include is not None:
                    groups.append(_Group(include, exclude, _numbers(name, config, default)))
        return cls((*groups, _Group(re.compile(".*", re.DOTALL), None, default)))

    def rule(self, topic: str) -> NewTopicRule | None:
        """Return the rule for a new topic, or None if the connector must not create it."""
        return next((group.rule for group in self.groups if group.matches(topic)), None)


def _numbers(group: str, config: Mapping[str, str], default: NewTopicRule | None) -> NewTopicRule:
    """Return the rule for a group.

    The default group must define the partition count and the replication factor. The other groups
    inherit both values unless they define their own.
    """
    prefix = f"{PREFIX}{group}."
    definition = ConfigDef()
    for key, kind, check, inherited in (
        ("partitions", Type.INT, check_partitions, default and default.partitions),
        (
            "replication.factor",
            Type.SHORT,
            check_replication_factor,
            default and default.replication_factor,
        ),
    ):
        if inherited is None:
            definition.define(
                prefix + key, kind, validator=check, importance=Importance.LOW, doc=""
            )
        else:
            definition.define(
                prefix + key,
                kind,
                default=inherited,
                validator=check,
                importance=Importance.LOW,
                doc="",
            )
    values = definition.parse(config)
    settings = {
        key: value for key, value in with_prefix(config, prefix).items() if key not in OWN_KEYS
    }
    return NewTopicRule(
        group, values[f"{prefix}partitions"], values[f"{prefix}replication.factor"], settings
    )


def _pattern(group: str, key: str, settings: Mapping[str, str]) -> re.Pattern[str] | None:
    name = f"{PREFIX}{group}.{key}"
    expressions = [e for e in parse(name, settings.get(key, ""), Type.LIST) if e]
    if not expressions:
        return None
    try:
        for expression in expressions:
            java_regex(expression, name)
        return java_regex("|".join(expressions), name)
    except ConfigError as error:
        raise ConfigValueError(
            name, expressions, f"Syntax error in regular expression: {error.why}"
        ) from error
