"""Checks for worker properties on this machine."""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from connect_py.api.check import Check, Finding, Verdict
from connect_py.api.errors import ConnectError
from connect_py.api.plugin import PluginKind
from connect_py.config.properties_file import read_properties
from connect_py.config.worker_config import DistributedConfig, StandaloneConfig, WorkerConfig
from connect_py.plugins.plugin_registry import PluginRegistry
from rest.server import Listener

CONVERTERS = ("key.converter", "value.converter")
PROBE_SECONDS = 3.0


def read_worker(path: Path) -> WorkerConfig:
    """Return the configuration of a distributed or standalone worker.

    Raises:
        OSError, ConfigError: The file cannot be read, or a property is invalid.
    """
    props = read_properties(path)
    standalone = "offset.storage.file.filename" in props and "group.id" not in props
    return StandaloneConfig.of(props) if standalone else DistributedConfig.of(props)


def worker_checks(path: Path, config: WorkerConfig, plugins: PluginRegistry) -> list[Check]:
    """Return the checks that do not connect to Kafka."""
    return [
        Check("properties", lambda: properties(path, config)),
        *(Check(f"port of {each}", partial(port, each)) for each in _listeners(config)),
        Check("plugins", lambda: plugin_path(config, plugins)),
        *(Check(key, partial(converter, key, config, plugins)) for key in CONVERTERS),
    ]


def _listeners(config: WorkerConfig) -> list[str]:
    return [*config["listeners"], *(config["admin.listeners"] or ())]


def properties(path: Path, config: WorkerConfig) -> Sequence[Finding]:
    """Check that all property names are known."""
    if config.unknown:
        remedy = "Correct the spelling, or ignore this if a plugin uses the property."
        return [
            Finding(
                "properties",
                Verdict.WARN,
                f"{path}: unknown keys: {', '.join(config.unknown)}",
                remedy,
            )
        ]
    return [Finding("properties", Verdict.OK, str(path))]


def port(address: str) -> Sequence[Finding]:
    """Check that a listener can be opened. If not, report the process that uses the port."""
    listener = Listener.parse(address)
    host, subject = listener.host or "", f"port {listener.port}"
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, listener.port))
        except OSError as error:
            owner = _worker_at(host, listener.port) or _process_at(listener.port)
            if owner is None:
                return [
                    Finding(
                        subject,
                        Verdict.FAIL,
                        f"{address}: {error.strerror}",
                        "Correct `listeners`.",
                    )
                ]
            if owner.startswith("a worker"):
                return [
                    Finding(
                        subject,
                        Verdict.WARN,
                        f"{owner} responds on this port",
                        "Nothing to do if it is this worker.",
                    )
                ]
            return [
                Finding(
                    subject, Verdict.FAIL, f"in use by {owner}", "Stop it, or change `listeners`."
                )
            ]
    return [Finding(subject, Verdict.OK, "free")]


def _worker_at(host: str, number: int) -> str | None:
    import httpx

    client_host = host if host not in ("", "0.0.0.0", "::") else "127.0.0.1"
    try:
        response = httpx.get(
            f"http://{f'[{client_host}]' if ':' in client_host else client_host}:{number}/",
            timeout=PROBE_SECONDS,
        )
        info = response.json()
        return (
            f"a worker ({info['version']}, {info['commit']})"
            if "kafka_cluster_id" in info
            else None
        )
    except (httpx.HTTPError, ValueError, TypeError, KeyError):
        return None


def _process_at(number: int) -> str | None:
    """Return the process that listens on a port, or None if none is visible to this user."""
    import psutil

    try:
        connections = psutil.net_connections("tcp")
    except psutil.Error:
        return "another program"
    for connection in connections:
        if connection.status == psutil.CONN_LISTEN and connection.laddr.port == number:
            try:
                process = psutil.Process(connection.pid)
                return f"{process.name()} (process {process.pid})"
            except (
                psutil.Error,
                ValueError,
                TypeError,
            ):  # the process belongs to another user, or it has exited
                return "another program"
    return None


def plugin_path(config: WorkerConfig, plugins: PluginRegistry) -> Sequence[Finding]:
    """Check that the directories in `plugin.path` are readable, and list the connectors."""
    paths = [path.strip() for path in config["plugin.path"] or () if path.strip()]
    missing = [
        path for path in paths if not os.path.isdir(path) or not os.access(path, os.R_OK | os.X_OK)
    ]
    if missing:
        remedy = "Correct `plugin.path`, or the permissions of the directory."
        return [
            Finding(
                "plugin.path",
                Verdict.FAIL,
                f"not a readable directory: {', '.join(missing)}",
                remedy,
            )
        ]
    connectors = plugins.available(PluginKind.SINK, PluginKind.SOURCE)
    names = ", ".join(sorted({plugin.name.rpartition(".")[2] for plugin in connectors}))
    return [Finding("plugins", Verdict.OK, names)]


def converter(key: str, config: WorkerConfig, plugins: PluginRegistry) -> Sequence[Finding]:
    """Check that the worker's converter is installed."""
    try:
        plugins.find(config[key], PluginKind.CONVERTER)
    except ConnectError as error:
        return [Finding(key, Verdict.FAIL, str(error), f"Correct `{key}`, or install its plugin.")]
    return [Finding(key, Verdict.OK, str(config[key]).rpartition(".")[2])]
