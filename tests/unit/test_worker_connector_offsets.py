"""Requests about offsets: which connector answers them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any, cast

import pytest

from connect_py.api.errors import ConnectError
from connect_py.api.plugin import Plugin, PluginKind
from connect_py.clock import SystemClock
from connect_py.plugins.plugin_registry import PluginRegistry
from connect_py.plugins.plugin_table import PluginTable
from connect_py.worker.connector_hosts import ConnectorHosts
from connect_py.worker.connector_messages import AlterOffsets
from connect_py.worker.connector_offsets import ConnectorOffsets

SECONDS = 30.0
VERSIONS = [
    Plugin(PluginKind.SOURCE, "x.Lines", "collections:OrderedDict", version=v)
    for v in ("1.0", "2.0")
]


class Store:
    """Offsets of a source whose copies are on their way as long as a test wants."""

    def __init__(self) -> None:
        self.copied: Future[None] = Future()
        self.storing = threading.Event()

    def refresh(self, timeout: float) -> None:
        """There is nothing to read."""

    def offsets(self) -> list[Any]:
        return [({"file": "a"}, {"at": 1})]

    def set(self, offsets: Any, write: Callable[[Any], None] | None) -> Future[None]:
        self.storing.set()
        return self.copied


class Stores:
    def __init__(self, store: Store) -> None:
        self._store = store

    def open(self, *_: Any) -> Stores:
        return self

    def __enter__(self) -> Store:
        return self._store

    def __exit__(self, *_: object) -> None:
        """It stays."""


class Hosts:
    """Remembers who was asked."""

    def __init__(self) -> None:
        self.asked: list[Plugin] = []

    def host_of(self, _location: str | None) -> Hosts:
        return self

    def request(self, request: AlterOffsets) -> Future[Any]:
        self.asked.append(request.plugin)
        answer: Future[Any] = Future()
        answer.set_result(True)
        return answer


@pytest.fixture
def hosts() -> Hosts:
    return Hosts()


@pytest.fixture
def store() -> Store:
    return Store()


@pytest.fixture
def offsets(hosts: Hosts, store: Store) -> ConnectorOffsets:
    registry = PluginRegistry([PluginTable(tuple(VERSIONS))])
    same: Callable[[Mapping[str, str]], Mapping[str, str]] = lambda config: config  # noqa: E731 - typed on one line
    stores: Any = Stores(store)
    return ConnectorOffsets({}, registry, cast(ConnectorHosts, hosts), stores, same, SystemClock())


@pytest.mark.parametrize("plugin", VERSIONS)
def test_the_version_that_runs_is_the_one_that_judges(
    offsets: ConnectorOffsets, hosts: Hosts, store: Store, plugin: Plugin
) -> None:
    store.copied.set_result(None)
    config = {"connector.class": "Lines", "connector.plugin.version": f"[{plugin.version}]"}
    offsets.alter_source("c", config, None, 1).result(SECONDS)
    assert hosts.asked == [plugin]
    with pytest.raises(ConnectError, match="version range"):
        offsets.alter_source("c", {**config, "connector.plugin.version": "[9]"}, None, 1).result(
            SECONDS
        )
    offsets.close()


def test_offset_change_completes_only_after_its_copy_is_stored(
    offsets: ConnectorOffsets, store: Store
) -> None:
    changed = offsets.alter_source("c", {"connector.class": "Lines"}, None, 1)
    assert store.storing.wait(SECONDS)
    assert not changed.done()
    store.copied.set_result(None)
    changed.result(SECONDS)
    offsets.close()
