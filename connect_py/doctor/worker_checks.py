"""What a worker's properties say, and whether this machine can do it."""

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
    """The configuration of a worker of either mode.

    Raises:
        OSError, ConfigError: The file cannot be read, or a property is not acceptable.
    """
    props = read_properties(path)
    standalone = "offset.storage.file.filename" in props and "group.id" not in props
    return StandaloneConfig.of(props) if standalone else DistributedConfig.of(props)


def worker_checks(path: Path, config: WorkerConfig, plugins: PluginRegistry) -> list[Check]:
    """Checks that need no Kafka."""
    return [
        Check("properties", lambda: properties(path, config)),
        *(Check(f"port of {text}", partial(port, text)) for text in _listeners(config)),
        Check("plugins", lambda: plugin_path(config, plugins)),
        *(Check(key, partial(converter, key, config, plugins)) for key in CONVERTERS),
    ]


def _listeners(config: WorkerConfig) -> list[str]:
    return [*config["listeners"], *(config["admin.listeners"] or ())]


def properties(path: Path, config: WorkerConfig) -> Sequence[Finding]:
    """Whether each key is known."""
    if config.unknown:
        mend = "Correct its spelling, or leave it: a plugin may read it."
        return [
            Finding(
                "properties", Verdict.WARN, f"{path}: not known: {', '.join(config.unknown)}", mend
            )
        ]
    return [Finding("properties", Verdict.OK, str(path))]


def port(text: str) -> Sequence[Finding]:
    """Whether a listener can be opened, and who has its port otherwise."""
    listener = Listener.parse(text)
    host, subject = listener.host or "", f"port {listener.port}"
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, listener.port))
        except OSError as error:
            taken = _worker_at(host, listener.port) or _process_at(listener.port)
            if taken is None:
                return [
                    Finding(
                        subject, Verdict.FAIL, f"{text}: {error.strerror}", "Correct `listeners`."
                    )
                ]
            if taken.startswith("a worker"):
                return [
                    Finding(
                        subject,
                        Verdict.WARN,
                        f"{taken} answers there",
                        "Nothing, if it is this one.",
                    )
                ]
            return [
                Finding(
                    subject, Verdict.FAIL, f"taken by {taken}", "Stop it, or change `listeners`."
                )
            ]
    return [Finding(subject, Verdict.OK, "free")]


def _worker_at(host: str, number: int) -> str | None:
    import httpx

    shown = host if host not in ("", "0.0.0.0", "::") else "127.0.0.1"
    try:
        answer = httpx.get(
            f"http://{f'[{shown}]' if ':' in shown else shown}:{number}/", timeout=PROBE_SECONDS
        )
        found = answer.json()
        return (
            f"a worker ({found['version']}, {found['commit']})"
            if "kafka_cluster_id" in found
            else None
        )
    except (httpx.HTTPError, ValueError, TypeError, KeyError):
        return None


def _process_at(number: int) -> str | None:
    """The process that listens on a port; None if no process does, as far as this user may see."""
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
            except (psutil.Error, ValueError, TypeError):  # of another user, or it ended
                return "another program"
    return None


def plugin_path(config: WorkerConfig, plugins: PluginRegistry) -> Sequence[Finding]:
    """Whether the folders of `plugin.path` can be read, and what was found."""
    paths = [text.strip() for text in config["plugin.path"] or () if text.strip()]
    missing = [
        path for path in paths if not os.path.isdir(path) or not os.access(path, os.R_OK | os.X_OK)
    ]
    if missing:
        mend = "Correct `plugin.path`, or the rights of the folder."
        return [
            Finding(
                "plugin.path",
                Verdict.FAIL,
                f"no folder that can be read: {', '.join(missing)}",
                mend,
            )
        ]
    connectors = plugins.available(PluginKind.SINK, PluginKind.SOURCE)
    names = ", ".join(sorted({plugin.name.rpartition(".")[2] for plugin in connectors}))
    return [Finding("plugins", Verdict.OK, names)]


def converter(key: str, config: WorkerConfig, plugins: PluginRegistry) -> Sequence[Finding]:
    """Whether the worker's converter is installed."""
    try:
        plugins.find(config[key], PluginKind.CONVERTER)
    except ConnectError as error:
        return [Finding(key, Verdict.FAIL, str(error), f"Correct `{key}`, or install its plugin.")]
    return [Finding(key, Verdict.OK, str(config[key]).rpartition(".")[2])]
