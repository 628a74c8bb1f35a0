"""The plugins of a task: the task itself, converters, transformations, and predicates."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from connect_py.api.config import Type as ConfigType
from connect_py.api.config import parse, with_prefix
from connect_py.api.converter import Converter, HeaderConverter
from connect_py.api.errors import ConfigError, ConnectError
from connect_py.api.plugin import Plugin, PluginKind
from connect_py.api.task import Task
from connect_py.error_handling.error_handler import ErrorHandler
from connect_py.plugins.plugin_registry import PluginRegistry, load_class
from connect_py.task.record_pipeline import Converters
from connect_py.task.transformation_chain import ChainLink, TransformationChain

TASK_CLASS = "task.class"
DEFAULT_HEADER_CONVERTER = "org.apache.kafka.connect.storage.SimpleHeaderConverter"


class TaskPlugins:
    """Creates the plugins of one task. Raises ConfigError or ConnectError on failure."""

    def __init__(
        self,
        registry: PluginRegistry,
        worker_props: Mapping[str, str],
        connector_config: Mapping[str, str],
    ) -> None:
        self._registry = registry
        self._worker = worker_props
        self._config = connector_config

    def connector(self) -> Plugin:
        """Return the connector's plugin."""
        if not self._config.get("connector.class"):
            raise ConfigError("connector.class", "is missing")
        return self._registry.connector_of(self._config)

    def task(self, task_config: Mapping[str, str]) -> tuple[Task, str]:
        """Create the task. Return it with its class name, as used in configurations."""
        connector = self.connector()
        connector_class = self._registry.load(connector)
        cls = connector_class.task_class
        name = connector.task_class or f"{cls.__module__}.{cls.__qualname__}"
        requested_class = task_config.get(TASK_CLASS)
        if requested_class and requested_class not in (
            name,
            f"{cls.__module__}.{cls.__qualname__}",
            f"{cls.__module__}:{cls.__qualname__}",
            # written by the worker if the connector's plugin does not define a task class name
            connector.python,
        ):
            cls = self._load_task_class(requested_class)
            name = requested_class
        task: Task = cls()
        return task, name

    def _load_task_class(self, class_name: str) -> type[Task]:
        """Load a task class whose name another connector class or worker wrote to the config."""
        for plugin in self._registry.available(PluginKind.SINK, PluginKind.SOURCE):
            if plugin.task_class == class_name:
                task_class: type[Task] = self._registry.load(plugin).task_class
                return task_class
        if ":" in class_name:
            return load_class(class_name)
        raise ConnectError(f"no installed connector has the task class {class_name}")

    def converters(self) -> Converters:
        """Create the task's converters.

        A converter that the connector does not set is created from the worker's configuration.
        """
        key, key_name = self._converter("key.converter", PluginKind.CONVERTER)
        value, value_name = self._converter("value.converter", PluginKind.CONVERTER)
        header, header_name = self._converter("header.converter", PluginKind.HEADER_CONVERTER)
        assert isinstance(key, Converter)
        assert isinstance(value, Converter)
        assert isinstance(header, HeaderConverter)
        return Converters(key, value, header, key_name, value_name, header_name)

    def _converter(self, key: str, kind: PluginKind) -> tuple[Converter | HeaderConverter, str]:
        source = self._config if self._config.get(key) else self._worker
        name = source.get(key) or (
            DEFAULT_HEADER_CONVERTER if kind is PluginKind.HEADER_CONVERTER else None
        )
        if not name:
            raise ConfigError(key, "must be set on the connector or on the worker")
        plugin = self._registry.find(
            name.strip(), kind, versions=source.get(f"{key}.plugin.version")
        )
        instance = self._registry.load(plugin)()
        configs = with_prefix(source, f"{key}.")
        configs.pop("plugin.version", None)
        configs["converter.type"] = key.removesuffix(".converter")
        # some converters also convert headers; for headers, they are configured as value converters
        if isinstance(instance, Converter):
            instance.configure(configs, is_key=key == "key.converter")
        elif isinstance(instance, HeaderConverter):
            instance.configure(configs)
        else:
            raise ConfigError(key, f"{name} is not a converter")
        return instance, plugin.name

    def chain(
        self, errors: ErrorHandler, *, sink_takes_columns: bool = False
    ) -> TransformationChain:
        """Create the transformations in the order of `transforms`.

        Each use of a predicate gets its own instance.
        """
        links = []
        for alias in parse("transforms", self._config.get("transforms", ""), ConfigType.LIST):
            prefix = f"transforms.{alias}."
            configs = with_prefix(self._config, prefix)
            transformation, name = self._plugin(f"{prefix}type", PluginKind.TRANSFORMATION)
            predicate_alias = configs.pop("predicate", "").strip()
            negate = configs.pop("negate", "").strip().lower() == "true"
            transformation.configure(_plugin_keys(configs))
            predicate = None
            if predicate_alias:
                predicate_prefix = f"predicates.{predicate_alias}."
                predicate, _ = self._plugin(f"{predicate_prefix}type", PluginKind.PREDICATE)
                predicate.configure(_plugin_keys(with_prefix(self._config, predicate_prefix)))
            links.append(ChainLink(transformation, name, predicate, negate))
        return TransformationChain(links, errors, sink_takes_columns=sink_takes_columns)

    def _plugin(self, key: str, kind: PluginKind) -> tuple[Any, str]:
        name = self._config.get(key)
        if not name:
            raise ConfigError(key, "is missing")
        versions = self._config.get(f"{key.removesuffix('.type')}.plugin.version")
        plugin = self._registry.find(name.strip(), kind, versions=versions)
        return self._registry.load(plugin)(), plugin.name


def _plugin_keys(configs: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in configs.items() if key not in ("type", "plugin.version")}
