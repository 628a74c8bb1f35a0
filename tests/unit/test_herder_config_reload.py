"""Connectors whose secrets change are restarted, and no others."""

from __future__ import annotations

import threading
from collections.abc import Set

import pytest

from connect_py.api.config_provider import ConfigData, ConfigProvider
from connect_py.api.errors import ConfigError
from connect_py.config.config_provider import ConfigResolver
from connect_py.herder.local_work.config_reload import ConfigReload
from connect_py.herder.thread.request_queue import RequestQueue
from connect_py.testing import FakeClock

SECONDS = 30.0
CONFIG = {"name": "c", "password": "${v:db:password}"}


class Vault(ConfigProvider):
    """Values that hold for ten seconds."""

    password = "one"
    broken = False

    def get(self, path: str, keys: Set[str]) -> ConfigData:
        if self.broken:
            raise ConfigError("", "sealed")
        return ConfigData({"password": self.password}, 10_000)


class World:
    """A herder's thread, its clock, and the restarted connectors."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.vault = Vault()
        self.queue = RequestQueue(self.clock)
        self.restarted: list[str] = []
        self.held = True
        self.reload = ConfigReload(
            ConfigResolver({"v": self.vault}), self.queue, self.restart, lambda question: question()
        )

    def restart(self, name: str) -> bool:
        self.restarted.append(name)
        if self.held:
            self.reload.watch(name, CONFIG)  # as its start does
        return self.held

    def after(self, seconds: float) -> list[str]:
        """What was restarted in this time."""
        self.restarted.clear()
        for _ in range(int(seconds)):
            self.clock.now += 1.0
            self.run()
        return list(self.restarted)

    def run(self) -> None:
        while due := self.queue.due():
            for action in due:
                action()


@pytest.fixture
def world() -> World:
    made = World()
    made.reload.watch("c", CONFIG)
    made.run()
    return made


def test_connector_restarts_after_each_change_of_its_provider_values(world: World) -> None:
    assert world.after(25) == []
    world.vault.password = "two"
    assert world.after(10) == ["c"]
    assert world.after(25) == []
    world.vault.password = "three"
    assert world.after(10) == ["c"]


def test_task_started_with_new_values_still_restarts_the_connector(world: World) -> None:
    world.vault.password = "two"
    world.reload.watch("c", CONFIG)
    assert world.after(10) == ["c"]


def test_a_provider_that_is_away_restarts_nobody(world: World) -> None:
    world.vault.broken = True
    assert world.after(30) == []
    world.vault.broken = False
    assert world.after(30) == []
    world.vault.password = "two"
    assert world.after(10) == ["c"]


@pytest.mark.parametrize(
    "config", [{**CONFIG, "config.action.reload": "NONE"}, {"name": "c", "password": "plain"}]
)
def test_connector_without_reload_action_or_ttl_is_never_restarted(
    world: World, config: dict[str, str]
) -> None:
    world.reload.watch("c", config)
    world.vault.password = "two"
    assert world.after(30) == []


def test_a_connector_that_left_is_forgotten(world: World) -> None:
    world.held = False
    world.vault.password = "two"
    assert world.after(10) == ["c"]
    world.vault.password = "three"
    assert world.after(30) == []


class Hanging(ConfigProvider):
    """Responds when a test releases it."""

    def __init__(self) -> None:
        self.asked, self.may_answer = threading.Semaphore(0), threading.Event()

    def get(self, path: str, keys: Set[str]) -> ConfigData:
        self.asked.release()
        assert self.may_answer.wait(SECONDS)
        return ConfigData({"password": "one"}, 10_000)


def test_hanging_provider_blocks_no_caller_and_is_called_once() -> None:
    clock, provider, restarted = FakeClock(), Hanging(), set[str]()
    queue = RequestQueue(clock)

    def restart(name: str) -> bool:
        restarted.add(name)
        return True

    reload = ConfigReload(ConfigResolver({"v": provider}), queue, restart)
    for _ in range(5):  # a connector and its tasks
        reload.watch("c", CONFIG)
    assert provider.asked.acquire(timeout=SECONDS)
    assert queue.due() == []
    provider.may_answer.set()
    queue.wait(SECONDS)
    (heard,) = queue.due()
    heard()
    clock.now += 10
    (look,) = queue.due()
    provider.may_answer.clear()
    look()  # on the herder's thread, too
    assert provider.asked.acquire(timeout=SECONDS)
    assert not provider.asked.acquire(blocking=False)
    provider.may_answer.set()
    queue.wait(SECONDS)
    (heard,) = queue.due()
    heard()
    assert restarted == set()


def test_unresolvable_configuration_is_resolved_again_at_next_start(world: World) -> None:
    other = {**CONFIG, "more": "1"}
    world.vault.broken = True
    world.reload.watch("c", other)
    assert world.after(1) == []
    world.vault.broken = False
    world.reload.watch("c", other)
    assert world.after(1) == []
    world.vault.password = "two"
    assert world.after(11) == ["c"]
