"""`Validator`: validates connector configurations.

The result contains the config keys of the framework, the connector, its transformations,
predicates, and converters, and the client overrides.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from connect_py.api.config import (
    NO_DEFAULT,
    ConfigDef,
    ConfigKey,
    ConfigValue,
    ConfigValueError,
    Importance,
    MissingConfigError,
    Type,
    Width,
)
from connect_py.api.errors import ConfigError, ConnectError, NotFoundError
from connect_py.api.plugin import Plugin, PluginKind
from connect_py.config.config_provider import PROVIDERS, named_providers
from connect_py.config.connector_config import (
    CONVERTERS,
    NULL_TEXT,
    FrameworkDefaults,
    common_config_def,
    sink_config_def,
    source_config_def,
)
from connect_py.config.version_range import VersionRange
from connect_py.config.worker_config import WorkerConfig
from connect_py.error_handling.error_config import DEAD_LETTER_TABLE, REPLAY_TOPIC
from connect_py.herder.herder import (
    BadRequestError,
    Config,
    ConfigInfos,
    ConfigKeyInfo,
)
from connect_py.herder.thread.stage_board import StageBoard
from connect_py.herder.validation.client_overrides import override_rows
from connect_py.herder.validation.connector_rules import VALIDATION_SECONDS, ConnectorRules
from connect_py.herder.validation.validation_rows import (
    Rows,
    config_infos,
    key_info,
    without_prefix,
)
from connect_py.plugins.plugin_registry import AmbiguousPluginError, UnknownPluginError
from connect_py.worker.worker import ConnectorValidation, Worker

CONVERTER_KINDS = {
    "key.converter": PluginKind.CONVERTER,
    "value.converter": PluginKind.CONVERTER,
    "header.converter": PluginKind.HEADER_CONVERTER,
}
CONVERTER_TYPE = ConfigKey(
    "converter.type",
    Type.STRING,
    NO_DEFAULT,
    None,
    Importance.LOW,
    "Whether the converter is used for keys, values, or headers. Set by the worker.",
)
VALID_KINDS = (
    "Valid types are sink, source, converter, header_converter, transformation, predicate."
)
_IMPORTANCES = list(Importance)


class Validator:
    """Validates connector configurations. Thread-safe. Calls wait for the connector process."""

    def __init__(
        self,
        config: WorkerConfig,
        worker: Worker,
        why_no_transactions: Callable[[], str | None] = lambda: None,
        is_configured: Callable[[str], bool] = lambda name: False,
    ) -> None:
        """Create the validator.

        Args:
            why_no_transactions: Returns the reason why the worker cannot use transactions, or None.
            is_configured: Returns True if a connector with this name exists.
        """
        self._config = config
        self._worker = worker
        self._rules = ConnectorRules(config, worker, why_no_transactions, is_configured)
        self._plugins = worker.plugins

    # Validation

    def validate(self, config: Config, stages: StageBoard) -> ConfigInfos:
        """Validate a configuration as submitted by a user, and record the progress in `stages`.

        Raises:
            BadRequestError: The connector class is missing or unknown.
            ConnectError: The connector's own validation failed or timed out.
        """
        class_name = config.get("connector.class")
        if class_name is None:
            raise BadRequestError("Connector config contains no connector type")
        dropped = named_providers(config)
        raw = {key: value for key, value in config.items() if key not in dropped}
        props = self._config.resolver.resolve(raw)
        redacted = {
            key for key in self._config.resolver.placeholder_keys(raw) if props[key] != raw[key]
        }
        plugin = self._connector((props["connector.class"] or "").strip())
        wrong_version = self._version_problem(plugin, props.get("connector.plugin.version"))
        framework = self._framework_rows(plugin, props, common_only=wrong_version is not None)
        if wrong_version is not None:
            framework.error("connector.class", wrong_version)
            framework.error("connector.plugin.version", wrong_version)
            return config_infos(class_name, [framework], framework.count(), raw, redacted)
        plugin = self._plugins.find_connector(plugin.name, props.get("connector.plugin.version"))
        self._add_aliases(framework, props)
        if plugin.kind is PluginKind.SINK:
            self._rules.check_sink(framework, props)
        else:
            self._rules.check_source(framework, plugin, props)
        self._add_nulls(framework, props)
        with stages.stage(
            f"validating {plugin.kind.value} connector-specific properties for the connector"
        ):
            self._add_connector(framework, plugin, class_name, props)
            if plugin.kind is PluginKind.SINK and not framework.count():
                self._rules.check_transactions(framework, plugin, props)
        overrides = override_rows(self._config, plugin, props, redacted)
        converters = self._converter_rows(props)
        count = framework.count() + overrides.keys_with_errors() + converters.keys_with_errors()
        return config_infos(class_name, [framework, overrides, converters], count, raw, redacted)

    def _connector(self, class_name: str) -> Plugin:
        try:
            return self._plugins.find_connector(class_name)
        except (UnknownPluginError, AmbiguousPluginError) as error:
            raise BadRequestError(str(error)) from error

    def _versions(self, plugin: Plugin) -> list[str]:
        versions = (
            self._plugins.version(p)
            for p in self._plugins.available(plugin.kind)
            if p.name == plugin.name
        )
        return [version for version in versions if version is not None]

    def _version_problem(self, plugin: Plugin, spec: str | None) -> str | None:
        """Return an error message if no installed version matches, otherwise None.

        Raises:
            BadRequestError: The version range is invalid.
        """
        if spec is None:
            return None
        installed = self._versions(plugin)
        try:
            version_range = VersionRange.parse(spec)
        except ConfigError as error:
            raise BadRequestError(str(error)) from error
        candidates = (p for p in self._plugins.available(plugin.kind) if p.name == plugin.name)
        if any(self._plugins.fits(candidate, version_range) for candidate in candidates):
            return None
        versions = ", ".join(installed)
        return (
            f"Plugin {plugin.name} not found that matches the version range {version_range}, "
            f"available versions: [{versions}]"
        )

    def _framework_rows(self, plugin: Plugin, props: Config, *, common_only: bool) -> Rows:
        rows = Rows()
        definition = self._framework_def(plugin, props, common_only=common_only)
        values = definition.validate(props)
        for key in definition:
            rows.add(key, values[key.name])
        if common_only:
            return rows
        for name, kind in CONVERTER_KINDS.items():
            class_name = props.get(name)
            if class_name is None:
                continue
            plugin_of_converter, problem = self._look_up(name, class_name.strip(), kind)
            rows.values[name].value = (
                None if plugin_of_converter is None else plugin_of_converter.name
            )
            rows.values[f"{name}.plugin.version"].visible = plugin_of_converter is not None
            if problem is not None:
                rows.error(name, problem)
        return rows

    def _framework_def(self, plugin: Plugin, props: Config, *, common_only: bool) -> ConfigDef:
        if common_only:
            return common_config_def(
                FrameworkDefaults(self._plugins.version(plugin), self._versions(plugin))
            )
        defaults = self._defaults(plugin, props)
        return (sink_config_def if plugin.kind is PluginKind.SINK else source_config_def)(defaults)

    def _defaults(self, plugin: Plugin, props: Config) -> FrameworkDefaults:
        """Return the defaults of the framework keys.

        They include the worker's converters and the versions of the converters that the connector
        will use.
        """
        versions: dict[str, str | None] = {}
        for key, kind in CONVERTER_KINDS.items():
            converter_class = (props.get(key) or self._config[key]).strip()
            converter, problem = self._look_up(key, converter_class, kind)
            versions[key] = (
                None
                if converter is None or problem is not None
                else self._plugins.version(converter)
            )
        return FrameworkDefaults(
            self._plugins.version(plugin),
            self._versions(plugin),
            {key: self._config[key] for key in CONVERTERS},
            versions,
            {
                key: [p.name for p in self._plugins.available(kind)]
                for key, kind in CONVERTER_KINDS.items()
            },
        )

    def _look_up(self, key: str, name: str, kind: PluginKind) -> tuple[Plugin | None, str | None]:
        """Return the plugin with this name and an error message, either of which may be None.

        Both are returned if the plugin is of a different kind.
        """
        try:
            return self._plugins.find(name, kind), None
        except UnknownPluginError:
            try:
                other = self._plugins.find(name)
            except ConnectError:
                return None, str(ConfigValueError(key, name, f"Class {name} could not be found."))
            return (
                other,
                f"Class class {other.name} does not implement the {_INTERFACES[kind]} interface",
            )
        except AmbiguousPluginError as error:
            return None, str(error)

    def _add_nulls(self, rows: Rows, props: Config) -> None:
        for name, value in props.items():
            if value is None:
                rows.error(name, NULL_TEXT)

    # Transformations and predicates

    def _add_aliases(self, rows: Rows, props: Config) -> None:
        for kind, prefix, label in (
            (PluginKind.TRANSFORMATION, "transforms", "Transformation"),
            (PluginKind.PREDICATE, "predicates", "Predicate"),
        ):
            for alias in dict.fromkeys(rows.values[prefix].value or ()):
                group = f"{prefix.capitalize()}: {alias}"
                self._add_alias(
                    rows, props, kind, f"{prefix}.{alias}.", group, f"{label} {{}} for {alias}"
                )
        for alias in dict.fromkeys(rows.values["transforms"].value or ()):
            prefix = f"transforms.{alias}."
            if f"{prefix}negate" in props and f"{prefix}predicate" not in props:
                rows.error(
                    f"{prefix}type",
                    f"Config '{prefix}negate' was provided but there is no config "
                    f"'{prefix}predicate' defining a predicate to be negated.",
                )

    def _add_alias(
        self, rows: Rows, props: Config, kind: PluginKind, prefix: str, group: str, title: str
    ) -> None:
        type_name, version_name = f"{prefix}type", f"{prefix}plugin.version"
        class_name = props.get(type_name)
        plugin, problem = (
            (None, None)
            if class_name is None
            else self._look_up(type_name, class_name.strip(), kind)
        )
        usable = None if problem is not None else plugin
        version = None if usable is None else self._plugins.version(usable)
        type_key = ConfigKey(
            type_name,
            Type.CLASS,
            NO_DEFAULT,
            None,
            Importance.HIGH,
            f"Class of the {kind.value}.",
            group,
            0,
            Width.LONG,
            title.format("type"),
        )
        version_key = ConfigKey(
            version_name,
            Type.STRING,
            version,
            None,
            Importance.HIGH,
            f"Version or version range of the {kind.value}.",
            group,
            1,
            Width.LONG,
            title.format("version"),
        )
        type_value = ConfigValue(type_name, None if plugin is None else plugin.name)
        type_value.recommended_values = [
            available.name for available in self._plugins.available(kind)
        ]
        version_value = ConfigValue(version_name, props.get(version_name, version))
        version_value.recommended_values = [] if usable is None else [*self._versions(usable)]
        rows.add(type_key, type_value)
        rows.add(version_key, version_value)
        if class_name is None:
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

    def _add_alias_keys(
        self, rows: Rows, props: Config, plugin: Plugin, prefix: str, group: str
    ) -> None:
        """Add the sorted keys of the plugin, including the keys that every transformation has."""
        implicit = ConfigDef()
        if plugin.kind is PluginKind.TRANSFORMATION:
            implicit.define(
                "predicate",
                Type.STRING,
                default=None,
                doc="Alias of the predicate that determines whether the transformation is applied.",
            )
            implicit.define(
                "negate", Type.BOOLEAN, default=False, doc="Whether the predicate is negated."
            )
        plugin_props = {
            k: v
            for k, v in without_prefix(props, prefix).items()
            if k not in ("type", "plugin.version", *implicit.keys)
        }
        result = self._wait_plugin(plugin, plugin_props)
        values = {key: _prefixed(value, key, prefix + key) for key, value in result.values.items()}
        full_names = ConfigDef(replace(key, name=prefix + key.name) for key in implicit)
        values |= {
            name.removeprefix(prefix): value for name, value in full_names.validate(props).items()
        }
        keys = [
            key for key in result.definitions if key.name not in implicit.keys and not key.internal
        ]
        for order, key in enumerate(sorted([*keys, *implicit], key=_alias_order), start=2):
            full = replace(
                key,
                name=prefix + key.name,
                group=f"{group}: {key.group}" if key.group else group,
                order_in_group=order,
                display_name=key.display_name or key.name,
            )
            rows.add(full, values.get(key.name) or ConfigValue(full.name))

    def _wait_plugin(self, plugin: Plugin, props: Config) -> ConnectorValidation:
        return self._worker.validate_plugin(plugin, props).result(VALIDATION_SECONDS)

    # Connector and converters

    def _add_connector(self, rows: Rows, plugin: Plugin, class_name: str, props: Config) -> None:
        result = self._worker.validate_connector(plugin.name, props).result(VALIDATION_SECONDS)
        defined = {key.name: key for key in result.definitions if not key.internal}
        for name, key in defined.items():
            existing = rows.values.get(name)
            value = result.values.get(name) or ConfigValue(name)
            if name in props and props[name] is None and NULL_TEXT not in value.errors:
                value.errors.append(NULL_TEXT)
            elif name in rows.keys and existing is not None:
                value.errors.extend(
                    message for message in existing.errors if message not in value.errors
                )
            rows.add(key, value)
        for name in (DEAD_LETTER_TABLE, REPLAY_TOPIC):
            if (props.get(name) or "").strip() and name not in defined:
                rows.error(
                    name,
                    f"{class_name} does not support a dead letter table; use "
                    "errors.deadletterqueue.topic.name",
                )
        for name, value in result.values.items():
            if name not in defined and (name not in rows.values or value.errors):
                existing = rows.values.setdefault(name, value)
                existing.errors.extend(
                    message for message in value.errors if message not in existing.errors
                )

    def _converter_rows(self, props: Config) -> Rows:
        rows = Rows()
        for name in ("header.converter", "key.converter", "value.converter"):
            class_name = props.get(name)
            if class_name is None:
                continue
            try:
                versions = props.get(f"{name}.plugin.version")
                plugin = self._plugins.find(
                    class_name.strip(), CONVERTER_KINDS[name], versions=versions
                )
            except ConnectError:
                continue  # the error is reported for the key of the converter class
            converter_props = {
                key: value
                for key, value in without_prefix(props, f"{name}.").items()
                if key != "plugin.version"
            }
            kind = name.partition(".")[0]
            result = self._wait_plugin(plugin, {**converter_props, CONVERTER_TYPE.name: kind})
            values = {
                CONVERTER_TYPE.name: ConfigValue(CONVERTER_TYPE.name, kind),
                **result.values,
            }
            for key in self._with_converter_type(plugin, result.definitions):
                full = replace(
                    key, name=f"{name}.{key.name}", display_name=key.display_name or key.name
                )
                value = values.get(key.name) or ConfigValue(key.name)
                rows.add(full, _prefixed(value, key.name, full.name))
        return rows

    def _with_converter_type(self, plugin: Plugin, keys: Iterable[ConfigKey]) -> list[ConfigKey]:
        """Return the visible keys of a converter, including the converter type.

        The worker sets the converter type, so the converter does not need to define it.
        """
        visible_keys = [key for key in keys if not key.internal and key.name != CONVERTER_TYPE.name]
        _, problem = self._look_up(CONVERTER_TYPE.name, plugin.name, PluginKind.CONVERTER)
        return [CONVERTER_TYPE, *visible_keys] if problem is None else visible_keys

    # Responses

    def plugin_config(self, name: str, version: str | None) -> list[ConfigKeyInfo]:
        """Return the config keys of a plugin, for `GET /connector-plugins/{p}/config`.

        Raises:
            NotFoundError: No plugin has this name.
            BadRequestError: The version is invalid or not installed.
        """
        # aliases of nested classes are allowed in configurations but not in this request's path
        nested_alias = "$" in name and "." not in name
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
        keys = [
            key
            for key in self._worker.plugin_definitions(plugin).result(VALIDATION_SECONDS)
            if not key.internal
        ]
        if plugin.kind in (PluginKind.SINK, PluginKind.SOURCE):
            defaults = FrameworkDefaults(self._plugins.version(plugin))
            framework = (sink_config_def if plugin.kind is PluginKind.SINK else source_config_def)(
                defaults
            )
            names = {key.name for key in keys}
            keys += [key for key in framework if key.name not in names]
        if plugin.kind in (PluginKind.CONVERTER, PluginKind.HEADER_CONVERTER):
            keys = self._with_converter_type(plugin, keys)
        return [key_info(key) for key in keys]


_INTERFACES = {
    PluginKind.CONVERTER: "Converter",
    PluginKind.HEADER_CONVERTER: "HeaderConverter",
    PluginKind.TRANSFORMATION: "Transformation",
    PluginKind.PREDICATE: "Predicate",
}


def _prefixed(value: ConfigValue, name: str, full: str) -> ConfigValue:
    """Return the value with its full name, including the prefix.

    Only the error message for a missing key is changed to contain the full name.
    """
    missing = str(MissingConfigError(name))
    errors = [
        str(MissingConfigError(full)) if message == missing else message for message in value.errors
    ]
    return ConfigValue(full, value.value, list(value.recommended_values), errors, value.visible)


def _alias_order(key: ConfigKey) -> tuple[bool, str, int, bool, int, str]:
    order = key.order_in_group if key.group else 0
    return (
        key.group is not None,
        key.group or "",
        order,
        key.has_default,
        _IMPORTANCES.index(key.importance),
        key.name,
    )
