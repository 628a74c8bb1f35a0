"""REST API paths of a worker, shared by the server and its clients.

A path is a template with parameters in braces. The function `path` replaces the parameters with
values.
"""

from __future__ import annotations

from typing import Final
from urllib.parse import quote

ROOT: Final = "/"
HEALTH: Final = "/health"
METRICS: Final = "/metrics"
API_DESCRIPTION: Final = "/openapi.json"

CONNECTORS: Final = "/connectors"
CONNECTOR: Final = "/connectors/{connector}"
CONNECTOR_CONFIG: Final = "/connectors/{connector}/config"
CONNECTOR_STATUS: Final = "/connectors/{connector}/status"
CONNECTOR_RESTART: Final = "/connectors/{connector}/restart"
CONNECTOR_PAUSE: Final = "/connectors/{connector}/pause"
CONNECTOR_RESUME: Final = "/connectors/{connector}/resume"
CONNECTOR_STOP: Final = "/connectors/{connector}/stop"
CONNECTOR_OFFSETS: Final = "/connectors/{connector}/offsets"
CONNECTOR_OPERATION: Final = "/connectors/{connector}/operations/{operation}"
CONNECTOR_TOPICS: Final = "/connectors/{connector}/topics"
CONNECTOR_TOPICS_RESET: Final = "/connectors/{connector}/topics/reset"
TASKS: Final = "/connectors/{connector}/tasks"
TASK_STATUS: Final = "/connectors/{connector}/tasks/{task}/status"
TASK_RESTART: Final = "/connectors/{connector}/tasks/{task}/restart"

# signed requests between the workers of a group
CONNECTOR_FENCE: Final = "/connectors/{connector}/fence"
CONNECTOR_STOP_REQUEST: Final = "/connectors/{connector}/stop-request"

PLUGINS: Final = "/connector-plugins"
PLUGIN_CONFIG: Final = "/connector-plugins/{plugin}/config"
PLUGIN_VALIDATE: Final = "/connector-plugins/{plugin}/config/validate"

LOGGERS: Final = "/admin/loggers"
LOGGER: Final = "/admin/loggers/{logger}"

# web UI
PAGE: Final = "/ui"
PAGE_WORKER: Final = "/ui/worker.json"
PAGE_METRICS: Final = "/ui/metrics.txt"
PAGE_FILE: Final = "/ui/{file}"
API_PAGE: Final = "/docs"


def path(template: str, **parameters: str | int) -> str:
    """Return a path in which each parameter is replaced with its percent-encoded value."""
    return template.format(
        **{name: quote(str(value), safe="") for name, value in parameters.items()}
    )
