"""Whether a connector would be accepted, and what its plugin asks besides."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.metadata import entry_points
from typing import Final

from connect_py.api.check import Check, Finding, Verdict
from connect_py.api.command import JAVA
from connect_py.api.errors import ConnectError
from connect_py.api.service import SharedServices
from connect_py.plugins.plugin_registry import PluginRegistry

GROUP: Final = "connect_py.checks"


def connector_check(
    props: Mapping[str, str], plugins: PluginRegistry, services: SharedServices
) -> Check:
    """Whether the plugin is installed and accepts the configuration, on a worker with these
    services."""
    return Check("connector", lambda: connector(props, plugins, services), 30.0)


def connector(
    props: Mapping[str, str], plugins: PluginRegistry, services: SharedServices
) -> Sequence[Finding]:
    """A line for each key that the connector's plugin does not accept."""
    name = props.get("connector.class", "")
    try:
        plugin = plugins.find_connector(name)
    except ConnectError as error:
        return [
            Finding(
                "connector.class",
                Verdict.FAIL,
                str(error).partition(", available")[0],
                "Install its plugin.",
            )
        ]
    made = plugins.load(plugin)()
    made.services = services
    values = made.validate(dict(props))
    wrong = [
        Finding(key, Verdict.FAIL, text, "Correct the connector's configuration.")
        for key, value in values.items()
        for text in value.errors
    ]
    return wrong or [
        Finding("connector", Verdict.OK, f"{plugin.name.rpartition('.')[2]} accepts its keys")
    ]


def plugin_checks(props: Mapping[str, str], *, with_java: bool) -> tuple[list[Check], bool]:
    """The checks that plugins bring for this connector, and whether Java is needed for some.

    Args:
        props: The connector.
        with_java: Java and its libraries are there. Otherwise checks that start a JVM are left out.
    """
    checks: list[Check] = []
    java = False
    for entry in entry_points(group=GROUP):
        function = entry.load()
        brought: Sequence[Check] = function(props)
        needs_java = bool(brought) and hasattr(function, JAVA)
        java = java or needs_java
        if with_java or not needs_java:
            checks += brought
    return checks, java
