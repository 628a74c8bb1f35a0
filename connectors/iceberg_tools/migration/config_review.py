"""Translates a Java sink's configuration and describes the differences."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from connect_py.api.errors import ConfigError
from connectors.iceberg.config.sink_config import IcebergSinkConfig
from connectors.iceberg.config.sink_options import ClassFamily
from connectors.iceberg.config.spellings import NEVER_VALID, with_current_spellings

Props = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class ConfigReview:
    """Result of a review. The configuration cannot be submitted if there are `problems`."""

    # configuration to submit, with current key names and without keys that have no effect
    config: Mapping[str, str]
    changes: tuple[tuple[str, str], ...]  # key and difference from the Java sink
    dropped: tuple[tuple[str, str], ...]  # key and reason for its removal
    problems: tuple[str, ...]
    parsed: IcebergSinkConfig | None


def review(props: Props) -> ConfigReview:
    """Review the properties of a connector, including `name`."""
    family = ClassFamily.of(props.get("connector.class", ""))
    current, warnings = with_current_spellings(props)
    dropped = _without_effect(current, family)
    config = {key: value for key, value in current.items() if key not in dict(dropped)}
    problems: list[str] = []
    parsed = None
    try:
        parsed = IcebergSinkConfig.parse(config)
    except ConfigError as error:
        problems.append(str(error))
    changes = [
        ("", warning) for warning in warnings if not any(key in warning for key, _ in dropped)
    ]
    changes += [
        (key, text)
        for key, key_family, value, text in _CHANGES
        if key in current and key_family in (None, family) and value in (None, current[key].lower())
    ]
    if parsed is not None:
        changes += [("", warning) for warning in parsed.warnings]
    changes += _DEFAULTS
    return ConfigReview(config, tuple(changes), tuple(dropped), tuple(problems), parsed)


def _without_effect(props: Props, family: ClassFamily) -> list[tuple[str, str]]:
    reasons = {**NEVER_VALID, **_UNUSED}
    if family is ClassFamily.APACHE:
        reasons["iceberg.control.group.id"] = "never had an effect under Apache's class name"
    return [(key, reasons[key]) for key in props if key in reasons]


_UNUSED: Mapping[str, str] = {
    "iceberg.control.group-id-prefix": "tasks of this sink need no separate consumer groups",
    "iceberg.coordinator-executor-keep-alive-timeout-ms": "one permanent thread commits to tables",
    "iceberg.coordinator.transactional.suffix": "applied only to the Java worker; this sink uses "
    "stable transactional IDs",
    "task.id": "applied only to the Java worker",
}

_MERGES = (
    "turns on MERGE mode, with one row per key; Apache's sink ignored this key and appended rows; "
    "iceberg.ext.write-mode=append restores that behavior"
)
# Each item consists of a config key, the class family and the value to which the item applies (None
# for all), and the difference from the Java sink.
_CHANGES: tuple[tuple[str, ClassFamily | None, str | None, str], ...] = (
    ("iceberg.tables.cdc-field", ClassFamily.APACHE, None, _MERGES),
    ("iceberg.tables.upsert-mode-enabled", ClassFamily.APACHE, "true", _MERGES),
    (
        "iceberg.tables.cdc-field",
        ClassFamily.TABULAR,
        None,
        "changes become deletion vectors or position deletes; equality deletes are no longer "
        "written",
    ),
    (
        "iceberg.tables.evolve-schema-enabled",
        None,
        "true",
        "only the coordinator changes tables; iceberg.ext.evolution.* select the policy for each "
        "kind of change",
    ),
    (
        "iceberg.tables.auto-create-enabled",
        None,
        "true",
        "identifier fields are set from id-columns, and an invalid partition-by is an error "
        "instead of an unpartitioned table",
    ),
    (
        "iceberg.control.topic",
        None,
        None,
        "commits are still announced on this topic; tasks and the coordinator use the topic "
        "<this topic>-<connect group id>, which is created automatically",
    ),
    (
        "iceberg.control.commit.timeout-ms",
        None,
        None,
        "after the timeout, all partitions that have been reported are committed; a slow task "
        "delays only its own rows",
    ),
    (
        "iceberg.control.commit.max-consecutive-failures",
        None,
        None,
        "counts cycles; if unset, commits to a failing table are retried without limit, with a "
        "warning",
    ),
    (
        "iceberg.control.group-id",
        ClassFamily.TABULAR,
        None,
        "is read only once, by this command; afterward, the tables contain the positions",
    ),
    (
        "errors.tolerance",
        None,
        "all",
        "also applies to conversion and routing errors in the sink, which failed the task of the "
        "Java sink",
    ),
    (
        "consumer.override.group.id",
        None,
        None,
        "is supported; iceberg.connect.group-id must name the same group (with this setting, the "
        "Java sink never committed)",
    ),
    (
        "iceberg.kafka.transactional.id",
        None,
        None,
        "is ignored; the coordinator's ID is stable, and a newer coordinator fences an older one",
    ),
)
_DEFAULTS = [
    (
        "iceberg.ext.lenient-conversion",
        "if unset, a value that does not fit its column is an error or a dead-letter record; true "
        "restores the behavior of the Java sink, which wrapped, truncated, or rounded the value",
    ),
    (
        "iceberg.ext.unrouted",
        "if unset, rows without a table are dropped and counted, as in the Java sink; the "
        "alternatives are fail and dlq",
    ),
]
