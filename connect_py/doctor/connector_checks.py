"""Checks for a connector: validation by its plugin, and checks that plugins provide."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.metadata import entry_points
from typing import Final

from connect_py.api.check import Check, Finding, Verdict
from connect_py.api.errors import ConnectError
from connect_py.api.service import SharedServices
from connect_py.plugins.plugin_registry import PluginRegistry

GROUP: Final = "connect_py.checks"


def connector_check(
    props: Mapping[str, str], plugins: PluginRegistry, services: SharedServices
) -> Check:
    """Return a check that the plugin is installed and accepts the configuration."""
    return Check("connector", lambda: connector(props, plugins, services), 30.0)


def connector(
    props: Mapping[str, str], plugins: PluginRegistry, services: SharedServices
) -> Sequence[Finding]:
    """Return a finding for each key that the connector's plugin rejects."""
    class_name = props.get("connector.class", "")
    try:
        plugin = plugins.find_connector(class_name)
    except ConnectError as error:
        message = str(error).partition(", available")[0]
        return [
            Finding(
                "connector.class",
                Verdict.FAIL,
                message,
                "Install the plugin that provides this class.",
            )
        ]
    instance = plugins.load(plugin)()
    instance.services = services
    errors = [
        Finding(key, Verdict.FAIL, message, "Correct the connector's configuration.")
        for key, value in instance.validate(dict(props)).items()
        for message in value.errors
    ]
    return errors or [
        Finding(
            "connector",
            Verdict.OK,
            f"{plugin.name.rpartition('.')[2]} accepts the configuration",
        )
    ]


def plugin_checks(props: Mapping[str, str], services: SharedServices) -> list[Check]:
    """Return the checks that installed plugins provide for this connector."""
    return [check for entry in entry_points(group=GROUP) for check in entry.load()(props, services)]
