"""Translation of a Java sink's configuration: the configuration to post, and remarks on it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from connect_py.api.errors import ConfigError
from connectors.iceberg.config.sink_config import IcebergSinkConfig
from connectors.iceberg.config.sink_options import ClassFamily
from connectors.iceberg.config.spellings import NEVER_VALID, respelled

Props = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class ConfigReview:
    """The answer. `problems`: it cannot be posted as it is."""

    config: Mapping[str, str]  # to be posted: new spellings, without what has no effect
    changes: tuple[tuple[str, str], ...]  # key, what is different here
    dropped: tuple[tuple[str, str], ...]  # key, why it is left out
    problems: tuple[str, ...]
    parsed: IcebergSinkConfig | None


def review(props: Props) -> ConfigReview:
    """Review the properties of a connector, `name` among them."""
    family = ClassFamily.of(props.get("connector.class", ""))
    known, warnings = respelled(props)
    dropped = _without_effect(known, family)
    config = {key: value for key, value in known.items() if key not in dict(dropped)}
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
        for key, of_family, value, text in _CHANGES
        if key in known and of_family in (None, family) and value in (None, known[key].lower())
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
    "iceberg.control.group-id-prefix": "tasks of this sink need no consumer groups of their own",
    "iceberg.coordinator-executor-keep-alive-timeout-ms": "one thread talks to tables, and stays",
    "iceberg.coordinator.transactional.suffix": "was the Java worker's own; transactional ids are "
    "stable here",
    "task.id": "was the Java worker's own",
}

_MERGES = (
    "turns on MERGE: one row per key. Apache's sink ignored it and appended; "
    "iceberg.ext.write-mode=append goes on with that"
)
# Key, the family and the value that it is said of (None: any), and what is different here.
_CHANGES: tuple[tuple[str, ClassFamily | None, str | None, str], ...] = (
    ("iceberg.tables.cdc-field", ClassFamily.APACHE, None, _MERGES),
    ("iceberg.tables.upsert-mode-enabled", ClassFamily.APACHE, "true", _MERGES),
    (
        "iceberg.tables.cdc-field",
        ClassFamily.TABULAR,
        None,
        "changes become deletion vectors or position deletes; no equality deletes are written any "
        "more",
    ),
    (
        "iceberg.tables.evolve-schema-enabled",
        None,
        "true",
        "the coordinator alone changes tables; iceberg.ext.evolution.* choose per kind of change",
    ),
    (
        "iceberg.tables.auto-create-enabled",
        None,
        "true",
        "identifier fields are set from id-columns, and a partition-by that makes no sense is an "
        "error instead of an unpartitioned table",
    ),
    (
        "iceberg.control.topic",
        None,
        None,
        "commits are still announced here; tasks and coordinator talk on <this>-<connect group "
        "id>, which is made",
    ),
    (
        "iceberg.control.commit.timeout-ms",
        None,
        None,
        "at the time-out the partitions that reported are committed; a slow task delays its own "
        "rows only",
    ),
    (
        "iceberg.control.commit.max-consecutive-failures",
        None,
        None,
        "counts cycles; unset, a table that cannot be committed is tried for ever and said so",
    ),
    (
        "iceberg.control.group-id",
        ClassFamily.TABULAR,
        None,
        "is read once, by this command: from then on the tables themselves hold the position",
    ),
    (
        "errors.tolerance",
        None,
        "all",
        "holds for conversion and routing errors of the sink too, which went on to kill the Java "
        "sink's task",
    ),
    (
        "consumer.override.group.id",
        None,
        None,
        "works: iceberg.connect.group-id must name the same group, which made the Java sink never "
        "commit",
    ),
    (
        "iceberg.kafka.transactional.id",
        None,
        None,
        "is ignored: the coordinator's id is stable, so that a newer one fences an older one",
    ),
)
_DEFAULTS = [
    (
        "iceberg.ext.lenient-conversion",
        "unset: a value that does not fit its column is an error or a dead letter; the Java sink "
        "wrapped, cut or rounded it. true: as there",
    ),
    (
        "iceberg.ext.unrouted",
        "unset: rows that no table takes are left out and counted, as there; fail and dlq are the "
        "other choices",
    ),
]
