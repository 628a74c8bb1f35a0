"""`TopicRule`: a rule in `iceberg.ext.topic-to-table`, which maps topics to tables."""

from __future__ import annotations

import re
from dataclasses import dataclass

from connect_py.api.errors import ConfigError
from connectors.iceberg.config.keys import TOPIC_TO_TABLE
from connectors.iceberg.config.layout_terms import split_outside_brackets
from connectors.iceberg.config.table_config import checked, compile_java_pattern

_PLACEHOLDER = re.compile(r"\{(\w+)\}")


@dataclass(frozen=True, slots=True)
class TopicRule:
    """Maps the topics that match a pattern to one or more tables.

        pairs    := pair ("," pair)*       a comma does not separate pairs inside (), [], and {} or after a backslash
        pair     := pattern ":" templates  the last colon is the separator; the pattern may contain colons
        pattern  := a Java regular expression that must match the whole topic name
        templates := template ("+" template)*  every row is written to each of these tables
        template := a table name; {topic} is the topic name, {1} is the first group, {name} is a named group

    The first pair whose pattern matches applies. Names are case-sensitive.
    """  # noqa: E501 - the grammar is wider

    pattern: re.Pattern[str]
    templates: tuple[str, ...]

    def tables(self, topic: str) -> tuple[str, ...] | None:
        """Return the tables for a topic, or None if the pattern does not match the whole topic."""
        match = self.pattern.fullmatch(topic)
        if match is None:
            return None

        def replacement(placeholder: re.Match[str]) -> str:
            group = placeholder[1]
            return (
                topic
                if group == "topic"
                else match[int(group) if group.isdecimal() else group] or ""
            )

        return tuple(
            dict.fromkeys(_PLACEHOLDER.sub(replacement, template) for template in self.templates)
        )


def topic_rules(text: str | None) -> tuple[TopicRule, ...]:
    """Parse the value of `iceberg.ext.topic-to-table`.

    Raises:
        ConfigError: The value is not valid.
    """
    rules = []
    for item in split_outside_brackets(text or ""):
        pattern, colon, template = item.rpartition(":")
        if not colon or not pattern.strip() or not template.strip():
            raise ConfigError(TOPIC_TO_TABLE, f"invalid pair {item!r}: expected pattern:template")
        rule = TopicRule(
            checked(TOPIC_TO_TABLE, compile_java_pattern, pattern.strip()),
            tuple(part.strip() for part in template.split("+")),
        )
        for part in rule.templates:
            _check_template(rule.pattern, part)
        rules.append(rule)
    return tuple(rules)


def _check_template(pattern: re.Pattern[str], template: str) -> None:
    for placeholder in _PLACEHOLDER.findall(template):
        is_name = placeholder == "topic" or placeholder in pattern.groupindex
        if not is_name and not (placeholder.isdecimal() and int(placeholder) <= pattern.groups):
            raise ConfigError(
                TOPIC_TO_TABLE, f"{{{placeholder}}} in {template} is not a group of the pattern"
            )
    if re.search(r"[{}]", _PLACEHOLDER.sub("", template)):
        raise ConfigError(TOPIC_TO_TABLE, f"{template} has an unmatched brace")
    if not is_table_name(_PLACEHOLDER.sub("x", template)):
        raise ConfigError(TOPIC_TO_TABLE, f"{template or 'an empty template'} is not a table name")


def is_table_name(text: str) -> bool:
    """Return True if a string is a table name: nonempty parts that are separated by dots."""
    return all(part.strip() for part in text.split("."))
