"""Config keys that the framework defines for every connector.

Names, types, defaults, and order are the same as in Java Kafka Connect.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from connect_py.api.config import (
    ConfigDef,
    ConfigValueError,
    Importance,
    Parsed,
    Type,
    Validator,
    Width,
    at_least,
    non_empty,
    one_of,
    regex,
    unique_items,
)

NULL_TEXT = "Null value can not be supplied as the configuration value."
COMMON, TRANSFORMS, PREDICATES, ERRORS = "Common", "Transforms", "Predicates", "Error Handling"
TOPIC_CREATION, EXACTLY_ONCE, OFFSETS_TOPIC = (
    "Topic Creation",
    "Exactly Once Support",
    "offsets.topic",
)
CONVERTERS = ("key.converter", "value.converter", "header.converter")


@dataclass(frozen=True, slots=True)
class FrameworkDefaults:
    """Computed defaults and recommended values for framework keys. None means unknown.

    `converters` and `converter_versions` are the worker's settings, keyed by config key
    (`key.converter`, ...).
    """

    connector_version: str | None = None
    connector_versions: Sequence[str] = ()  # installed versions, which are recommended
    converters: Mapping[str, str] = field(default_factory=dict)
    converter_versions: Mapping[str, str | None] = field(default_factory=dict)
    # recommended converter classes, keyed by config key
    class_names: Mapping[str, Sequence[str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Fixed:
    """Recommends fixed values."""

    values: Sequence[str]

    def valid_values(self, name: str, parsed: Mapping[str, Parsed]) -> Sequence[Parsed]:
        return self.values

    def visible(self, name: str, parsed: Mapping[str, Parsed]) -> bool:
        return True


@dataclass(frozen=True, slots=True)
class _ConverterVersion:
    """Recommends the version of a converter. The key is hidden if there is no converter."""

    converter: str  # config key of the converter
    default: str | None

    def valid_values(self, name: str, parsed: Mapping[str, Parsed]) -> Sequence[Parsed]:
        return [] if self.default is None or parsed.get(self.converter) is None else [self.default]

    def visible(self, name: str, parsed: Mapping[str, Parsed]) -> bool:
        return parsed.get(self.converter) is not None


def connector_name(name: str, value: Parsed) -> None:
    """Check that a connector name is not empty and contains no control characters.

    A missing name is accepted here because it is already reported as missing.
    """
    if value is None:
        return
    if value == "":
        raise ConfigValueError(name, value, "String may not be empty")
    control = [ord(c) for c in value if ord(c) < 32 or 127 <= ord(c) < 160]
    if control:
        codes = ", ".join(map(str, control))
        raise ConfigValueError(
            name,
            value,
            f"String may not contain control sequences but had the following ASCII chars: {codes}",
        )


def aliases(name: str, value: Parsed) -> None:
    """Check that a list of aliases is not null and contains no duplicates."""
    if value is None:
        raise ConfigValueError(name, None, "entry must be non null")
    if len(set(value)) != len(value):
        raise ConfigValueError(name, value, "Duplicate alias provided.")


def _null_or(validator: Validator) -> Validator:
    def check(name: str, value: Parsed) -> None:
        if value is not None:
            validator(name, value)

    return check


H, M, L = Importance.HIGH, Importance.MEDIUM, Importance.LOW


def common_config_def(defaults: FrameworkDefaults) -> ConfigDef:
    """Return the framework keys that sinks and sources share, in REST response order."""
    definition = (
        ConfigDef()
        .define(
            "name",
            Type.STRING,
            validator=connector_name,
            importance=H,
            group=COMMON,
            order=1,
            width=Width.MEDIUM,
            display_name="Connector name",
            doc="Name of the connector. It must be unique in the Connect cluster.",
        )
        .define(
            "connector.class",
            Type.STRING,
            importance=H,
            group=COMMON,
            order=2,
            width=Width.LONG,
            display_name="Connector class",
            doc="Connector class: the full name, the simple name, or the simple name without the "
            "suffix Connector.",
        )
        .define(
            "connector.plugin.version",
            Type.STRING,
            default=defaults.connector_version,
            importance=M,
            group=COMMON,
            order=3,
            width=Width.MEDIUM,
            display_name="Connector version",
            recommender=_Fixed(defaults.connector_versions),
            doc="Version or version range of the connector.",
        )
        .define(
            "tasks.max",
            Type.INT,
            default=1,
            validator=at_least(1),
            importance=H,
            group=COMMON,
            order=4,
            width=Width.SHORT,
            display_name="Tasks max",
            doc="Maximum number of tasks for the connector.",
        )
        .define(
            "tasks.max.enforce",
            Type.BOOLEAN,
            default=True,
            importance=L,
            group=COMMON,
            order=5,
            width=Width.SHORT,
            display_name="Enforce tasks max",
            doc="Whether a connector fails if it generates more than tasks.max tasks. Deprecated.",
        )
    )
    for position, (key, title) in enumerate(
        zip(CONVERTERS, ("Key", "Value", "Header"), strict=True)
    ):
        version = defaults.converter_versions.get(key)
        definition.define(
            key,
            Type.CLASS,
            default=defaults.converters.get(key),
            importance=L,
            group=COMMON,
            order=6 + 2 * position,
            width=Width.SHORT,
            display_name=f"{title} converter class",
            recommender=_Fixed(defaults.class_names.get(key, ())),
            doc=f"Converter for {title.lower()}s, which overrides the worker's converter. Its "
            f"settings have the prefix {key}.",
        ).define(
            f"{key}.plugin.version",
            Type.STRING,
            default=version,
            importance=L,
            group=COMMON,
            order=7 + 2 * position,
            width=Width.SHORT,
            display_name=f"{title} converter version",
            recommender=_ConverterVersion(key, version),
            doc=f"Version or version range of {key}.",
        )
    return (
        definition.define(
            "transforms",
            Type.LIST,
            default="",
            validator=aliases,
            importance=L,
            group=TRANSFORMS,
            order=12,
            width=Width.LONG,
            display_name="Transforms",
            doc="Aliases of the transformations, in the order in which they are applied.",
        )
        .define(
            "predicates",
            Type.LIST,
            default="",
            validator=aliases,
            importance=L,
            group=PREDICATES,
            order=13,
            width=Width.LONG,
            display_name="Predicates",
            doc="Aliases of the predicates that transformations use.",
        )
        .define(
            "config.action.reload",
            Type.STRING,
            default="restart",
            validator=one_of("none", "restart"),
            importance=L,
            group=COMMON,
            order=14,
            width=Width.MEDIUM,
            display_name="Reload Action",
            doc="Action when a value from a config provider expires.",
        )
        .define(
            "errors.retry.timeout",
            Type.LONG,
            default=0,
            importance=M,
            group=ERRORS,
            order=1,
            width=Width.MEDIUM,
            display_name="Retry Timeout for Errors",
            doc="Maximum time for which a failed operation is retried, in milliseconds. 0 "
            "disables retries, and -1 disables the limit.",
        )
        .define(
            "errors.retry.delay.max.ms",
            Type.LONG,
            default=60_000,
            importance=M,
            group=ERRORS,
            order=2,
            width=Width.MEDIUM,
            display_name="Maximum Delay Between Retries for Errors",
            doc="Maximum delay between retries, in milliseconds.",
        )
        .define(
            "errors.tolerance",
            Type.STRING,
            default="none",
            validator=one_of("none", "all"),
            importance=M,
            group=ERRORS,
            order=3,
            width=Width.SHORT,
            display_name="Error Tolerance",
            doc="Whether a bad record fails the task (none) or is skipped (all).",
        )
        .define(
            "errors.log.enable",
            Type.BOOLEAN,
            default=False,
            importance=M,
            group=ERRORS,
            order=4,
            width=Width.SHORT,
            display_name="Log Errors",
            doc="Whether bad records are logged.",
        )
        .define(
            "errors.log.include.messages",
            Type.BOOLEAN,
            default=False,
            importance=M,
            group=ERRORS,
            order=5,
            width=Width.SHORT,
            display_name="Log Error Details",
            doc="Whether the log contains the topic, partition, and offset of a bad record.",
        )
    )


def sink_config_def(defaults: FrameworkDefaults) -> ConfigDef:
    """Return all framework keys for sinks."""
    return (
        common_config_def(defaults)
        .define(
            "topics",
            Type.LIST,
            default="",
            validator=unique_items,
            importance=H,
            group=COMMON,
            order=4,
            width=Width.LONG,
            display_name="Topics",
            doc="Topics to consume.",
        )
        .define(
            "topics.regex",
            Type.STRING,
            default="",
            validator=regex,
            importance=H,
            group=COMMON,
            order=4,
            width=Width.LONG,
            display_name="Topics regex",
            doc="Regular expression for the topics to consume. It must match the entire topic "
            "name.",
        )
        .define(
            "errors.deadletterqueue.topic.name",
            Type.STRING,
            default="",
            importance=M,
            group=ERRORS,
            order=6,
            width=Width.MEDIUM,
            display_name="Dead Letter Queue Topic Name",
            doc="Topic for records that could not be processed. If empty, there is no dead-letter "
            "topic.",
        )
        .define(
            "errors.deadletterqueue.topic.replication.factor",
            Type.SHORT,
            default=3,
            importance=M,
            group=ERRORS,
            order=7,
            width=Width.MEDIUM,
            display_name="Dead Letter Queue Topic Replication Factor",
            doc="Replication factor of the dead-letter topic if the connector creates it.",
        )
        .define(
            "errors.deadletterqueue.context.headers.enable",
            Type.BOOLEAN,
            default=False,
            importance=M,
            group=ERRORS,
            order=8,
            width=Width.MEDIUM,
            display_name="Enable Error Context Headers",
            doc="Whether dead-letter records have headers with the reason and location of the "
            "failure.",
        )
    )


def source_config_def(defaults: FrameworkDefaults) -> ConfigDef:
    """Return all framework keys for sources."""
    return (
        common_config_def(defaults)
        .define(
            "topic.creation.groups",
            Type.LIST,
            default="",
            validator=aliases,
            importance=L,
            group=TOPIC_CREATION,
            order=1,
            width=Width.LONG,
            display_name="Topic Creation Groups",
            doc="Groups of topics that are created with their own settings.",
        )
        .define(
            "exactly.once.support",
            Type.STRING,
            default="requested",
            importance=M,
            group=EXACTLY_ONCE,
            order=2,
            validator=one_of("REQUESTED", "REQUIRED", case_insensitive=True),
            width=Width.SHORT,
            display_name="Exactly once support",
            doc="Whether the connector must support exactly-once delivery (required) or not "
            "(requested).",
        )
        .define(
            "transaction.boundary",
            Type.STRING,
            default="poll",
            importance=M,
            group=EXACTLY_ONCE,
            order=3,
            validator=one_of("POLL", "INTERVAL", "CONNECTOR", case_insensitive=True),
            width=Width.SHORT,
            display_name="Transaction Boundary",
            doc="What determines transaction boundaries: each poll (poll), a time interval "
            "(interval), or the connector (connector).",
        )
        .define(
            "transaction.boundary.interval.ms",
            Type.LONG,
            default=None,
            validator=_null_or(at_least(0)),
            importance=L,
            group=EXACTLY_ONCE,
            order=4,
            width=Width.SHORT,
            display_name="Transaction boundary interval",
            doc="Interval between transactions if transaction.boundary=interval, in milliseconds.",
        )
        .define(
            "offsets.storage.topic",
            Type.STRING,
            default=None,
            validator=_null_or(non_empty),
            importance=L,
            group=OFFSETS_TOPIC,
            order=1,
            width=Width.LONG,
            display_name="Offsets topic",
            doc="Topic for the connector's offsets, instead of the worker's offset topic.",
        )
    )
