"""Class names and versions of a task's plugins, using Kafka Connect's attribute names."""

from __future__ import annotations

from collections.abc import Mapping

from connect_py.api.config import Type, parse
from connect_py.api.errors import ConnectError
from connect_py.api.plugin import PluginKind
from connect_py.api.task import Task
from connect_py.plugins.plugin_registry import PluginRegistry
from connect_py.task.record_pipeline import Converters
from connect_py.task.task_plugins import TaskPlugins

UNKNOWN = "unknown"


def task_attributes(
    registry: PluginRegistry,
    plugins: TaskPlugins,
    task: Task,
    class_name: str,
    converters: Converters,
) -> dict[str, str]:
    """Return the class names and versions of the connector, task, and converters."""
    connector = plugins.connector()
    version = registry.version(connector) or UNKNOWN
    attributes = {
        "connector-class": connector.name,
        "connector-version": version,
        "connector-type": connector.kind.value,
        "task-class": class_name,
        "task-version": task.version or version,
    }
    for key, name, kind in (
        ("key-converter", converters.key_name, PluginKind.CONVERTER),
        ("value-converter", converters.value_name, PluginKind.CONVERTER),
        ("header-converter", converters.header_name, PluginKind.HEADER_CONVERTER),
    ):
        attributes[f"{key}-class"] = name
        attributes[f"{key}-version"] = _version(registry, name, kind)
    return attributes


def chain_attributes(
    registry: PluginRegistry, config: Mapping[str, str]
) -> list[tuple[str, str, str, str]]:
    """Return the kind, alias, class, and version of each transformation and predicate.

    The kind is `transform` or `predicate`.
    """
    parts = []
    for kind, key in (
        (PluginKind.TRANSFORMATION, "transforms"),
        (PluginKind.PREDICATE, "predicates"),
    ):
        for alias in parse(key, config.get(key, ""), Type.LIST):
            name = (config.get(f"{key}.{alias}.type") or UNKNOWN).strip()
            parts.append((key.removesuffix("s"), alias, name, _version(registry, name, kind)))
    return parts


def _version(registry: PluginRegistry, name: str, kind: PluginKind) -> str:
    try:
        return registry.version(registry.find(name, kind)) or UNKNOWN
    except ConnectError:
        return UNKNOWN
