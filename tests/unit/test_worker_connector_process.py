"""The connector process hears of its worker whatever the class of a connector does while it is
loaded."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Mapping
from typing import Any, cast

from connect_py.api.config import ConfigDef
from connect_py.api.connector import SinkConnector
from connect_py.api.errors import NotFoundError
from connect_py.api.plugin import Plugin, PluginKind
from connect_py.model import State, TargetState
from connect_py.plugins.plugin_registry import PluginTable
from connect_py.task.channel import Channel
from connect_py.worker.connector_messages import (
    ConnectorEvent,
    ConnectorProcessSpec,
    MakeTaskConfigs,
    Reply,
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
    """A channel that keeps what the process says."""

    def __init__(self) -> None:
        self.messages: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.send: Callable[[object], None] = self.messages.put

    def reply(self, number: int) -> Reply:
        while True:
            message = self.messages.get(timeout=SECONDS)
            if isinstance(message, Reply) and message.number == number:
                return message


def process_of(sent: Sent) -> ConnectorProcess:
    return ConnectorProcess(cast(Channel, sent), ConnectorProcessSpec([PluginTable(PLUGINS)], {}))


def start(name: str) -> StartConnector:
    return StartConnector(1, "c", 1, {"name": "c", "connector.class": name}, TargetState.STARTED)


def test_messages_are_taken_while_a_connector_is_being_made() -> None:
    sent = Sent()
    process = process_of(sent)
    MAY_GO_ON.clear()
    process.handle(start("test.Slow"))  # returns: the next message may be that the lease goes on
    process.handle(MakeTaskConfigs(2, "c", 2))
    MAY_GO_ON.set()
    assert sent.reply(1).error is None
    assert sent.reply(2).value == [{"n": "0"}, {"n": "1"}]


def test_a_connector_that_cannot_be_made_is_told_and_forgotten() -> None:
    sent = Sent()
    process = process_of(sent)
    process.handle(start("test.Broken"))
    news = sent.messages.get(timeout=SECONDS)
    assert isinstance(news, ConnectorEvent)
    assert (news.event, "no such driver" in (news.trace or "")) == (State.FAILED, True)
    assert isinstance(sent.reply(1).error, ValueError)
    process.handle(MakeTaskConfigs(2, "c", 1))
    assert isinstance(sent.reply(2).error, NotFoundError)
