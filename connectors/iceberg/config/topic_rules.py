"""`TopicRule`: the tables of a topic, as `iceberg.ext.topic-to-table` says."""

from __future__ import annotations

import re
from dataclasses import dataclass

from connect_py.api.errors import ConfigError
from connectors.iceberg.config.java_pattern import compile_java_pattern
from connectors.iceberg.config.keys import TOPIC_TO_TABLE
from connectors.iceberg.config.partition_by import split_outside_brackets
from connectors.iceberg.config.table_config import checked

_PLACE = re.compile(r"\{(\w+)\}")


@dataclass(frozen=True, slots=True)
class TopicRule:
    """One pair of `iceberg.ext.topic-to-table`.

        pairs    := pair ("," pair)*       commas inside (), [] and {} do not split, nor do those after a backslash
        pair     := pattern ":" templates  the last colon counts, so a pattern may hold some
        pattern  := a Java regular expression that must match the whole topic
        templates := template ("+" template)*  every row goes to each of these tables
        template := a table name; {topic} is the topic, {1} the first group, {name} the group of that name

    Pairs are tried in order, the first match decides. Names keep their case.
    """  # noqa: E501 - a table or a literal is wider

    pattern: re.Pattern[str]
    templates: tuple[str, ...]

    def tables(self, topic: str) -> tuple[str, ...] | None:
        """The tables of a topic, or None when the pattern does not match all of it."""
        match = self.pattern.fullmatch(topic)
        if match is None:
            return None

        def filled(place: re.Match[str]) -> str:
            group = place[1]
            return (
                topic
                if group == "topic"
                else match[int(group) if group.isdecimal() else group] or ""
            )

        return tuple(dict.fromkeys(_PLACE.sub(filled, template) for template in self.templates))


def topic_rules(text: str | None) -> tuple[TopicRule, ...]:
    rules = []
    for item in split_outside_brackets(text or ""):
        pattern, colon, template = item.rpartition(":")
        if not colon or not pattern.strip() or not template.strip():
            raise ConfigError(TOPIC_TO_TABLE, f"{item} is not of the form pattern:template")
        matches = checked(TOPIC_TO_TABLE, compile_java_pattern, pattern.strip())
        rule = TopicRule(matches, tuple(part.strip() for part in template.split("+")))
        for part in rule.templates:
            _check_template(rule.pattern, part)
        rules.append(rule)
    return tuple(rules)


def _check_template(pattern: re.Pattern[str], template: str) -> None:
    for place in _PLACE.findall(template):
        known = place == "topic" or place in pattern.groupindex
        if not known and not (place.isdecimal() and int(place) <= pattern.groups):
            raise ConfigError(
                TOPIC_TO_TABLE, f"{{{place}}} in {template} names no group of the pattern"
            )
    if re.search(r"[{}]", _PLACE.sub("", template)):
        raise ConfigError(TOPIC_TO_TABLE, f"{template} has a brace that belongs to no {{group}}")
    if not is_table_name(_PLACE.sub("x", template)):
        raise ConfigError(TOPIC_TO_TABLE, f"{template or 'an empty template'} is not a table name")


def is_table_name(text: str) -> bool:
    """Whether a text can name a table: parts between dots, none of them empty."""
    return all(part.strip() for part in text.split("."))
