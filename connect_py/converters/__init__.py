"""Built-in converters. `PLUGINS` names them; their modules are imported where they are used."""

from __future__ import annotations

from connect_py.api.plugin import Plugin, PluginKind

_HERE = "connect_py.converters"


def _both(java_name: str, python: str) -> tuple[Plugin, Plugin]:
    """A class that converts keys and values, and headers too."""
    return (
        Plugin(PluginKind.CONVERTER, java_name, f"{_HERE}.{python}"),
        Plugin(PluginKind.HEADER_CONVERTER, java_name, f"{_HERE}.{python}"),
    )


PLUGINS: tuple[Plugin, ...] = (*_both("org.apache.kafka.connect.json.JsonConverter", "json_converter:JsonConverter"),)
