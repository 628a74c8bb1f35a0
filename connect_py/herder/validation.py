"""`Validator`: what is wrong with a connector's configuration.

Composed of the framework's keys, the connector's, those of its transformations, predicates and converters, and of
client overrides.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from connect_py.api.config import (
    NO_DEFAULT,
    ConfigDef,
    ConfigKey,
    ConfigValue,
    ConfigValueError,
    Importance,
    MissingConfigError,
    Parsed,
    Type,
    Width,
    parse,
    to_text,
)
from connect_py.api.errors import ConfigError, ConnectError, NotFoundError
from connect_py.api.plugin import Plugin, PluginKind
from connect_py.api.task import ExactlyOnceSupport, TransactionBoundarySupport
from connect_py.config.client_definitions import client_config_keys
from connect_py.config.config_provider import PROVIDERS, named_providers
from connect_py.config.connector_config import (
    CONVERTERS,
    NULL_TEXT,
    FrameworkDefaults,
    common_config_def,
    sink_config_def,
    source_config_def,
)
from connect_py.config.override_policy import OverridePolicy
from connect_py.config.version_range import VersionRange
from connect_py.config.worker_config import WorkerConfig
from connect_py.error_handling.error_config import DEAD_LETTER_TABLE, REPLAY_TOPIC
from connect_py.herder.herder import (
    BadRequestError,
    Config,
    ConfigInfo,
    ConfigInfos,
    ConfigKeyInfo,
    ConfigValueInfo,
)
from connect_py.herder.stage_board import StageBoard
from connect_py.kafka.client_config import exactly_once_sources
from connect_py.kafka.security_settings import refuse_logins_of_java
from connect_py.plugins.plugin_registry import AmbiguousPluginError, UnknownPluginError
from connect_py.worker.worker import ConnectorValidation, Worker

log = logging.getLogger(__name__)

VALIDATION_SECONDS = 90.0
CONVERTER_KINDS = {
    "key.converter": PluginKind.CONVERTER,
    "value.converter": PluginKind.CONVERTER,
    "header.converter": PluginKind.HEADER_CONVERTER,
}
CONVERTER_TYPE = ConfigKey(
    "converter.type", Type.STRING, NO_DEFAULT, None, Importance.LOW,
    "Whether the converter is for keys, values or headers; the worker says it.",
)  # fmt: skip
VALID_KINDS = "Valid types are sink, source, converter, header_converter, transformation, predicate."
_IMPORTANCES = list(Importance)


@dataclass(slots=True)
class _Rows:
    """Definitions and values under way, in order; a key may have only one of the two."""

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


class Validator:
    """Safe on any thread; calls wait for the connector process."""

    def __init__(
        self,
        config: WorkerConfig,
        worker: Worker,
        why_no_transactions: Callable[[], str | None] = lambda: None,
        is_configured: Callable[[str], bool] = lambda name: False,
    ) -> None:
        """Prepare.

        Args:
            why_no_transactions: Why the worker goes on without transactions; None: it has them.
            is_configured: Whether there is a connector of this name.
        """
        self._config = config
        self._worker = worker
        self._why_no_transactions = why_no_transactions
        self._is_configured = is_configured
        self._plugins = worker.plugins

    # ------------------------------------------------------------------ validate

    def validate(self, config: Config, stages: StageBoard) -> ConfigInfos:
        """Validate a configuration as a user sent it; `stages` learns what is being done.

        Raises:
            BadRequestError: It names no connector class, or one that does not exist.
            ConnectError: The connector's own check raised, or took too long.
        """
        class_name = config.get("connector.class")
        if class_name is None:
            raise BadRequestError("Connector config contains no connector type")
        dropped = named_providers(config)
        raw = {key: value for key, value in config.items() if key not in dropped}
        props = self._config.resolver.resolve(raw)
        redacted = {key for key in self._config.resolver.placeholder_keys(raw) if props[key] != raw[key]}
        plugin = self._connector((props["connector.class"] or "").strip())
        wrong_version = self._version_problem(plugin, props.get("connector.plugin.version"))
        framework = self._framework_rows(plugin, props, common_only=wrong_version is not None)
        if wrong_version is not None:
            framework.error("connector.class", wrong_version)
            framework.error("connector.plugin.version", wrong_version)
            return self._infos(class_name, [framework], framework.count(), raw, redacted)
        plugin = self._plugins.find_connector(plugin.name, props.get("connector.plugin.version"))
        self._add_aliases(framework, props)
        if plugin.kind is PluginKind.SINK:
            self._check_sink(framework, props)
        else:
            self._check_source(framework, plugin, props)
        self._add_nulls(framework, props)
        with stages.stage(f"validating {plugin.kind.value} connector-specific properties for the connector"):
            self._add_connector(framework, plugin, class_name, props)
            if plugin.kind is PluginKind.SINK and not framework.count():
                self._check_transactions(framework, plugin, props)
        overrides = self._override_rows(plugin, props, redacted)
        converters = self._converter_rows(props)
        count = framework.count() + overrides.keys_with_errors() + converters.keys_with_errors()
        return self._infos(class_name, [framework, overrides, converters], count, raw, redacted)

    def _connector(self, class_name: str) -> Plugin:
        try:
            return self._plugins.find_connector(class_name)
        except (UnknownPluginError, AmbiguousPluginError) as error:
            raise BadRequestError(str(error)) from error

    def _versions(self, plugin: Plugin) -> list[str]:
        found = (self._plugins.version(p) for p in self._plugins.available(plugin.kind) if p.name == plugin.name)
        return [version for version in found if version is not None]

    def _version_problem(self, plugin: Plugin, spec: str | None) -> str | None:
        """Why no installed version fits; BadRequestError when the spec does not parse."""
        if spec is None:
            return None
        installed = self._versions(plugin)
        try:
            wanted = VersionRange.parse(spec)
        except ConfigError as error:
            raise BadRequestError(str(error)) from error
        same = (each for each in self._plugins.available(plugin.kind) if each.name == plugin.name)
        if any(self._plugins.fits(each, wanted) for each in same):
            return None
        listed = ", ".join(installed)
        return f"Plugin {plugin.name} not found that matches the version range {wanted}, available versions: [{listed}]"

    def _framework_rows(self, plugin: Plugin, props: Config, *, common_only: bool) -> _Rows:
        rows = _Rows()
        definition = self._framework_def(plugin, props, common_only=common_only)
        values = definition.validate(props)
        for key in definition:
            rows.add(key, values[key.name])
        if common_only:
            return rows
        for name, kind in CONVERTER_KINDS.items():
            chosen = props.get(name)
            if chosen is None:
                continue
            found, problem = self._look_up(name, chosen.strip(), kind)
            rows.values[name].value = None if found is None else found.name
            rows.values[f"{name}.plugin.version"].visible = found is not None
            if problem is not None:
                rows.error(name, problem)
        return rows

    def _framework_def(self, plugin: Plugin, props: Config, *, common_only: bool) -> ConfigDef:
        if common_only:
            return common_config_def(FrameworkDefaults(self._plugins.version(plugin), self._versions(plugin)))
        defaults = self._defaults(plugin, props)
        return (sink_config_def if plugin.kind is PluginKind.SINK else source_config_def)(defaults)

    def _defaults(self, plugin: Plugin, props: Config) -> FrameworkDefaults:
        """Converters are the worker's; their versions those of the converters in force."""
        versions: dict[str, str | None] = {}
        for key, kind in CONVERTER_KINDS.items():
            in_force = (props.get(key) or self._config[key]).strip()
            found, problem = self._look_up(key, in_force, kind)
            versions[key] = None if found is None or problem is not None else self._plugins.version(found)
        return FrameworkDefaults(
            self._plugins.version(plugin),
            self._versions(plugin),
            {key: self._config[key] for key in CONVERTERS},
            versions,
            {key: [p.name for p in self._plugins.available(kind)] for key, kind in CONVERTER_KINDS.items()},
        )

    def _look_up(self, key: str, name: str, kind: PluginKind) -> tuple[Plugin | None, str | None]:
        """The plugin of this name, of another kind even, and what is wrong with it."""
        try:
            return self._plugins.find(name, kind), None
        except UnknownPluginError:
            try:
                other = self._plugins.find(name)
            except ConnectError:
                return None, str(ConfigValueError(key, name, f"Class {name} could not be found."))
            return other, f"Class class {other.name} does not implement the {_INTERFACES[kind]} interface"
        except AmbiguousPluginError as error:
            return None, str(error)

    def _add_nulls(self, rows: _Rows, props: Config) -> None:
        for name, value in props.items():
            if value is None:
                rows.error(name, NULL_TEXT)

    # ------------------------------------------------------------------ transformations and predicates

    def _add_aliases(self, rows: _Rows, props: Config) -> None:
        for kind, prefix, what in (
            (PluginKind.TRANSFORMATION, "transforms", "Transformation"),
            (PluginKind.PREDICATE, "predicates", "Predicate"),
        ):
            for alias in dict.fromkeys(rows.values[prefix].value or ()):
                group = f"{prefix.capitalize()}: {alias}"
                self._add_alias(rows, props, kind, f"{prefix}.{alias}.", group, f"{what} {{}} for {alias}")
        for alias in dict.fromkeys(rows.values["transforms"].value or ()):
            prefix = f"transforms.{alias}."
            if f"{prefix}negate" in props and f"{prefix}predicate" not in props:
                rows.error(
                    f"{prefix}type",
                    f"Config '{prefix}negate' was provided but there is no config '{prefix}predicate' defining a "
                    "predicate to be negated.",
                )

    def _add_alias(self, rows: _Rows, props: Config, kind: PluginKind, prefix: str, group: str, title: str) -> None:
        type_name, version_name = f"{prefix}type", f"{prefix}plugin.version"
        chosen = props.get(type_name)
        plugin, problem = (None, None) if chosen is None else self._look_up(type_name, chosen.strip(), kind)
        usable = None if problem is not None else plugin
        version = None if usable is None else self._plugins.version(usable)
        type_key = ConfigKey(
            type_name, Type.CLASS, NO_DEFAULT, None,
            Importance.HIGH, f"Class of the {kind.value}.", group, 0, Width.LONG, title.format("type"),
        )  # fmt: skip
        version_key = ConfigKey(
            version_name, Type.STRING, version, None, Importance.HIGH,
            f"Version or version range of the {kind.value}.", group, 1, Width.LONG, title.format("version"),
        )  # fmt: skip
        type_value = ConfigValue(type_name, None if plugin is None else plugin.name)
        type_value.recommended_values = [available.name for available in self._plugins.available(kind)]
        version_value = ConfigValue(version_name, props.get(version_name, version))
        version_value.recommended_values = [] if usable is None else [*self._versions(usable)]
        rows.add(type_key, type_value)
        rows.add(version_key, version_value)
        if chosen is None:
            type_value.errors.append(str(MissingConfigError(type_name)))
        if problem is not None:
            type_value.errors.append(problem)
        if usable is None:
            return
        wrong_version = self._version_problem(usable, props.get(version_name))
        if wrong_version is not None:
            type_value.errors.append(wrong_version)
            version_value.errors.append(wrong_version)
            return
        usable = self._plugins.find(usable.name, kind, versions=props.get(version_name))
        self._add_alias_keys(rows, props, usable, prefix, group)

    def _add_alias_keys(self, rows: _Rows, props: Config, plugin: Plugin, prefix: str, group: str) -> None:
        """The plugin's own keys, and for a transformation the two that every one has, sorted together."""
        implicit = ConfigDef()
        if plugin.kind is PluginKind.TRANSFORMATION:
            implicit.define("predicate", Type.STRING, default=None, doc="Alias of the predicate that decides.")
            implicit.define("negate", Type.BOOLEAN, default=False, doc="Whether the predicate is negated.")
        own = {k: v for k, v in _below(props, prefix).items() if k not in ("type", "plugin.version", *implicit.keys)}
        checked = self._wait_plugin(plugin, own)
        values = {key: _prefixed(value, key, prefix + key) for key, value in checked.values.items()}
        full_names = ConfigDef(replace(key, name=prefix + key.name) for key in implicit)
        values |= {name.removeprefix(prefix): value for name, value in full_names.validate(props).items()}
        keys = [key for key in checked.definitions if key.name not in implicit.keys and not key.internal]
        for order, key in enumerate(sorted([*keys, *implicit], key=_alias_order), start=2):
            full = replace(
                key, name=prefix + key.name, group=f"{group}: {key.group}" if key.group else group,
                order_in_group=order, display_name=key.display_name or key.name,
            )  # fmt: skip
            rows.add(full, values.get(key.name) or ConfigValue(full.name))

    def _wait_plugin(self, plugin: Plugin, props: Config) -> ConnectorValidation:
        return self._worker.validate_plugin(plugin, props).result(VALIDATION_SECONDS)

    # ------------------------------------------------------------------ rules over several keys

    def _check_sink(self, rows: _Rows, props: Config) -> None:
        topics = [topic for topic in rows.values["topics"].value or () if topic]
        pattern = (props.get("topics.regex") or "").strip()
        dead_letters = (props.get("errors.deadletterqueue.topic.name") or "").strip()
        text = None
        if topics and pattern:
            text = "topics and topics.regex are mutually exclusive options, but both are set."
        elif not topics and not pattern:
            text = "Must configure one of topics or topics.regex"
        if text is not None:
            rows.error("topics", text)
            rows.error("topics.regex", text)
        elif dead_letters in topics:
            rows.error(
                "topics",
                f"The DLQ topic '{dead_letters}' may not be included in the list of topics "
                f"('topics=[{', '.join(topics)}]') consumed by the connector",
            )
        elif dead_letters and pattern and _matches(pattern, dead_letters):
            rows.error(
                "topics.regex",
                f"The DLQ topic '{dead_letters}' may not be matched by the regex for the topics "
                f"('topics.regex={pattern}') consumed by the connector",
            )
        group, override = self._config.group_id, "consumer.override.group.id"
        if group is None:
            return
        if override in props:
            rows.values.setdefault(override, ConfigValue(override, props[override]))
            if props[override] == group:
                rows.error(override, f"Consumer group {group} conflicts with Connect worker group {group}")
        elif f"connect-{props.get('name')}" == group:
            rows.error(
                "name",
                f"Consumer group for sink connector named {props['name']} conflicts with Connect worker group {group}",
            )

    def _check_source(self, rows: _Rows, plugin: Plugin, props: Config) -> None:
        """What a user demands of transactions must be there: of the worker, and of the connector, which is asked."""
        if self._config.group_id is None:
            return  # a standalone worker has no transactions to offer, and Java's does not look
        name = "exactly.once.support"
        if not rows.values[name].errors and str(rows.values[name].value).lower() == "required":
            if not exactly_once_sources(self._config.props):
                rows.error(name, "This worker does not have exactly-once source support enabled.")
            problem = self._asked(plugin, props, "exactly_once_support", _EXACTLY_ONCE_PROBLEMS)
            if problem is not None:
                rows.error(name, problem)
        name = "transaction.boundary"
        if not rows.values[name].errors and str(rows.values[name].value).lower() == "connector":
            problem = self._asked(plugin, props, "can_define_transaction_boundaries", _BOUNDARY_PROBLEMS)
            if problem is not None:
                rows.error(name, problem)

    def _check_transactions(self, rows: _Rows, plugin: Plugin, props: Config) -> None:
        """What a connector cannot do without must be granted; its tasks would all fail."""
        known = {key: value for key, value in props.items() if value is not None}
        name = known.get("name", "")
        try:
            wanted = self._worker.call_connector(plugin, "transactional_id", known).result(VALIDATION_SECONDS)
            if wanted is None:
                return
            why = self._why_no_transactions()
            if why is None and not self._is_configured(name):  # asking would fence the tasks that run
                why = self._worker.why_not_granted(name, known, wanted).result(VALIDATION_SECONDS)
        except Exception:
            log.exception("the transactional id of %s was not checked", plugin.name)
            return
        if why is not None:
            rows.error(
                "connector.class",
                f"The connector writes in transactions, which the cluster does not grant: {why}. Its tasks need "
                f"TransactionalId '{wanted}' (ACL: Write and Describe)",
            )

    def _asked(self, plugin: Plugin, props: Config, method: str, problems: Mapping[object, str]) -> str | None:
        """Ask the connector, and return what is wrong with its answer."""
        known = {key: value for key, value in props.items() if value is not None}
        try:
            answer = self._worker.call_connector(plugin, method, known).result(VALIDATION_SECONDS)
        except Exception as error:
            log.exception("%s of %s failed", method, plugin.name)
            text = str(error).strip()
            return "An unexpected error occurred during validation" + (
                f": {text}" if text else "; please see the worker logs for more details."
            )
        return problems.get(answer)

    # ------------------------------------------------------------------ connector, overrides, converters

    def _add_connector(self, rows: _Rows, plugin: Plugin, class_name: str, props: Config) -> None:
        checked = self._worker.validate_connector(plugin.name, props).result(VALIDATION_SECONDS)
        defined = {key.name: key for key in checked.definitions if not key.internal}
        for name, key in defined.items():
            known = rows.values.get(name)
            value = checked.values.get(name) or ConfigValue(name)
            if name in props and props[name] is None and NULL_TEXT not in value.errors:
                value.errors.append(NULL_TEXT)
            elif name in rows.keys and known is not None:
                value.errors.extend(text for text in known.errors if text not in value.errors)
            rows.add(key, value)
        for name in (DEAD_LETTER_TABLE, REPLAY_TOPIC):
            if (props.get(name) or "").strip() and name not in defined:
                rows.error(
                    name, f"{class_name} keeps no dead letters in a table; use errors.deadletterqueue.topic.name"
                )
        for name, value in checked.values.items():
            if name not in defined and (name not in rows.values or value.errors):
                known = rows.values.setdefault(name, value)
                known.errors.extend(text for text in value.errors if text not in known.errors)

    def _override_rows(self, plugin: Plugin, props: Config, redacted: Collection[str]) -> _Rows:
        """What is said of client settings; ConfigError for a value of the wrong type, as in Java."""
        sink = plugin.kind is PluginKind.SINK
        own_offsets = self._config.exactly_once_sources or "offsets.storage.topic" in props
        creates_topics = "topic.creation.default.replication.factor" in props
        dead_letters = bool((props.get("errors.deadletterqueue.topic.name") or "").strip())
        prefixes = []
        if not sink or dead_letters:
            prefixes.append("producer.override.")
        if sink or own_offsets:
            prefixes.append("consumer.override.")
        if dead_letters if sink else own_offsets or creates_topics:
            prefixes.append("admin.override.")
        rows, policy = _Rows(), OverridePolicy.of(self._config.props)
        for prefix in prefixes:
            known = client_config_keys(prefix.partition(".")[0])
            for name, value in props.items():
                if name.startswith(prefix):
                    key = known.get(name[len(prefix) :])
                    if key is None:
                        rows.values[name] = ConfigValue(name, value)
                    else:
                        rows.add(_under(prefix, key), ConfigValue(name, _of_type(key, name, value, redacted)))
                    problem = policy.refusal(name[len(prefix) :])
                    if problem is not None:
                        rows.error(name, problem)
            self._refuse_logins(rows, prefix, props, redacted)
        return rows

    def _refuse_logins(self, rows: _Rows, prefix: str, props: Config, redacted: Collection[str]) -> None:
        """Say of logins that only Java can do what to use instead."""
        try:
            refuse_logins_of_java({key: value for key, value in _below(props, prefix).items() if value is not None})
        except ConfigError as error:
            name = prefix + error.key
            rows.error(name, _redacted_text(name) if name in redacted else str(error).replace(error.key, name, 1))

    def _converter_rows(self, props: Config) -> _Rows:
        rows = _Rows()
        for name in ("header.converter", "key.converter", "value.converter"):
            chosen = props.get(name)
            if chosen is None:
                continue
            try:
                versions = props.get(f"{name}.plugin.version")
                plugin = self._plugins.find(chosen.strip(), CONVERTER_KINDS[name], versions=versions)
            except ConnectError:
                continue  # reported on the class key
            own = {key: value for key, value in _below(props, f"{name}.").items() if key != "plugin.version"}
            kind = name.partition(".")[0]
            checked = self._wait_plugin(plugin, {**own, CONVERTER_TYPE.name: kind})
            values = {CONVERTER_TYPE.name: ConfigValue(CONVERTER_TYPE.name, kind), **checked.values}
            for key in self._with_converter_type(plugin, checked.definitions):
                full = replace(key, name=f"{name}.{key.name}", display_name=key.display_name or key.name)
                value = values.get(key.name) or ConfigValue(key.name)
                rows.add(full, _prefixed(value, key.name, full.name))
        return rows

    def _with_converter_type(self, plugin: Plugin, keys: Iterable[ConfigKey]) -> list[ConfigKey]:
        """What is shown of a converter's keys. The worker sets the type of a converter; none has to define that key."""
        shown = [key for key in keys if not key.internal and key.name != CONVERTER_TYPE.name]
        _, problem = self._look_up(CONVERTER_TYPE.name, plugin.name, PluginKind.CONVERTER)
        return [CONVERTER_TYPE, *shown] if problem is None else shown

    # ------------------------------------------------------------------ answers

    def _infos(
        self, class_name: str, parts: Sequence[_Rows], count: int, raw: Config, redacted: Iterable[str]
    ) -> ConfigInfos:
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
        if any(info.value is not None and info.value.name in hidden and info.value.errors for info in configs):
            count = sum(len(info.value.errors) for info in configs if info.value is not None)
        return ConfigInfos(class_name, count, list(groups), configs)

    def plugin_config(self, name: str, version: str | None) -> list[ConfigKeyInfo]:
        """The keys of one plugin, for `GET /connector-plugins/{p}/config`.

        Raises:
            NotFoundError: No plugin has this name.
            BadRequestError: The version is not installed or does not parse.
        """
        nested_alias = "$" in name and "." not in name  # configurations may use it, this path never could
        try:
            if nested_alias:
                raise NotFoundError(name)
            plugin = self._plugins.find(name)
        except ConnectError as error:
            if name.rpartition(".")[2] in PROVIDERS:
                raise BadRequestError(f"Invalid plugin class {name}. {VALID_KINDS}") from error
            raise NotFoundError(f"Unknown plugin {name}.") from error
        if version is not None:
            try:
                VersionRange.parse(version)
            except ConfigError as error:
                raise BadRequestError(f"Invalid version specification: {version}") from error
            problem = self._version_problem(plugin, version)
            if problem is not None:
                raise BadRequestError(problem)
            plugin = self._plugins.find(plugin.name, plugin.kind, versions=version)
        keys = [key for key in self._worker.plugin_definitions(plugin).result(VALIDATION_SECONDS) if not key.internal]
        if plugin.kind in (PluginKind.SINK, PluginKind.SOURCE):
            defaults = FrameworkDefaults(self._plugins.version(plugin))
            framework = (sink_config_def if plugin.kind is PluginKind.SINK else source_config_def)(defaults)
            known = {key.name for key in keys}
            keys += [key for key in framework if key.name not in known]
        if plugin.kind in (PluginKind.CONVERTER, PluginKind.HEADER_CONVERTER):
            keys = self._with_converter_type(plugin, keys)
        return [key_info(key) for key in keys]


_EXACTLY_ONCE_PROBLEMS: Mapping[object, str] = {
    None: (
        "The connector does not implement the API required for preflight validation of exactly-once source support. "
        "Please consult the documentation for the connector to determine whether it supports exactly-once semantics, "
        'and then consider reconfiguring the connector to use the value "requested" for this property (which will '
        "disable this preflight check and allow the connector to be created)."
    ),
    ExactlyOnceSupport.UNSUPPORTED: (
        "The connector does not support exactly-once semantics with the provided configuration."
    ),
}
_BOUNDARY_PROBLEMS: Mapping[object, str] = {
    TransactionBoundarySupport.UNSUPPORTED: (
        "The connector does not support connector-defined transaction boundaries with the given configuration. "
        "Please reconfigure it to use a different transaction boundary definition."
    ),
}
_INTERFACES = {
    PluginKind.CONVERTER: "Converter",
    PluginKind.HEADER_CONVERTER: "HeaderConverter",
    PluginKind.TRANSFORMATION: "Transformation",
    PluginKind.PREDICATE: "Predicate",
}


def key_info(key: ConfigKey) -> ConfigKeyInfo:
    """A definition as answers show it."""
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


def _under(prefix: str, key: ConfigKey) -> ConfigKey:
    return replace(key, name=prefix + key.name, display_name=key.display_name or key.name)


def _of_type(key: ConfigKey, name: str, value: str | None, redacted: Collection[str]) -> Parsed:
    """Parse the value of a client setting; its error tells nothing of a value that a provider gave."""
    try:
        return parse(key.name, value, key.type)
    except ConfigError as error:
        raise (ConfigError("", _redacted_text(name)) if name in redacted else error) from None


def _redacted_text(name: str) -> str:
    return (
        f"Invalid value for configuration '{name}': the value resolved from the config provider reference failed "
        "validation"
    )


def _value_info(value: ConfigValue, kind: Type | None, raw: Config, redacted: set[str]) -> ConfigValueInfo:
    if value.name in redacted:
        errors = [_redacted_text(value.name)] if value.errors else []
        return ConfigValueInfo(value.name, raw[value.name], [], errors, value.visible)
    shown = [to_text(item, kind or Type.STRING) or "" for item in value.recommended_values]
    return ConfigValueInfo(
        value.name, to_text(value.value, kind or Type.STRING), shown, list(value.errors), value.visible
    )


def _prefixed(value: ConfigValue, name: str, full: str) -> ConfigValue:
    """The value under its full name. A missing key is named in full; other texts name it as the plugin does."""
    missing = str(MissingConfigError(name))
    errors = [str(MissingConfigError(full)) if text == missing else text for text in value.errors]
    return ConfigValue(full, value.value, list(value.recommended_values), errors, value.visible)


def _below(props: Config, prefix: str) -> dict[str, str | None]:
    return {key[len(prefix) :]: value for key, value in props.items() if key.startswith(prefix)}


def _alias_order(key: ConfigKey) -> tuple[bool, str, int, bool, int, str]:
    order = key.order_in_group if key.group else 0
    return key.group is not None, key.group or "", order, key.has_default, _IMPORTANCES.index(key.importance), key.name


def _matches(pattern: str, topic: str) -> bool:
    try:
        return re.fullmatch(pattern, topic) is not None
    except re.error:
        return False  # reported on its own key
