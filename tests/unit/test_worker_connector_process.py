"""The connector process receives messages while the class of a connector is loaded."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any, cast

from connect_py.api.config import ConfigDef
from connect_py.api.connector import SinkConnector
from connect_py.api.errors import NotFoundError
from connect_py.api.plugin import Plugin, PluginKind
from connect_py.model import State, TargetState
from connect_py.plugins.plugin_registry import PluginTable
from connect_py.process.channel import Channel
from connect_py.worker.connector_messages import (
    ConnectorEvent,
    ConnectorProcessSpec,
    MakeTaskConfigs,
    StartConnector,
)
from connect_py.worker.connector_process import ConnectorProcess

SECONDS = 30.0
MAY_GO_ON = threading.Event()


class SlowConnector(SinkConnector):
    """As with a class whose imports take long."""

    config_def = ConfigDef()

    def __init__(self) -> None:
        if not MAY_GO_ON.wait(SECONDS):
            raise TimeoutError("the process did nothing else meanwhile")

    def start(self, props: Mapping[str, str]) -> None:
        return

    def stop(self) -> None:
        return

    def task_configs(self, max_tasks: int) -> list[dict[str, str]]:
        return [{"n": str(number)} for number in range(max_tasks)]


class BrokenConnector(SlowConnector):
    def __init__(self) -> None:
        raise ValueError("no such driver")


PLUGINS = (
    Plugin(PluginKind.SINK, "test.Slow", f"{__name__}:SlowConnector"),
    Plugin(PluginKind.SINK, "test.Broken", f"{__name__}:BrokenConnector"),
)


class Sent:
    """A channel that stores the notifications of the process."""

    def __init__(self) -> None:
        self.messages: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.notify: Callable[[object], None] = self.messages.put


def process_of(sent: Sent) -> ConnectorProcess:
    return ConnectorProcess(cast(Channel, sent), ConnectorProcessSpec([PluginTable(PLUGINS)], {}))


def start(process: ConnectorProcess, name: str) -> Future[Any]:
    config = {"name": "c", "connector.class": name}
    reply = process.handle(StartConnector("c", config, TargetState.STARTED))
    assert reply is not None
    return reply


def task_configs(process: ConnectorProcess, max_tasks: int) -> Future[Any]:
    reply = process.handle(MakeTaskConfigs("c", max_tasks))
    assert reply is not None
    return reply


def test_requests_are_received_while_a_connector_is_being_created() -> None:
    process = process_of(Sent())
    MAY_GO_ON.clear()
    started = start(process, "test.Slow")  # returns: the next message may extend the lease
    configs = task_configs(process, 2)
    MAY_GO_ON.set()
    assert started.result(SECONDS) is None
    assert configs.result(SECONDS) == [{"n": "0"}, {"n": "1"}]


def test_failed_creation_of_a_connector_is_reported_and_forgotten() -> None:
    sent = Sent()
    process = process_of(sent)
    started = start(process, "test.Broken")
    event = sent.messages.get(timeout=SECONDS)
    assert isinstance(event, ConnectorEvent)
    assert event.event is State.FAILED
    assert "no such driver" in (event.trace or "")
    assert isinstance(started.exception(SECONDS), ValueError)
    assert isinstance(task_configs(process, 1).exception(SECONDS), NotFoundError)
