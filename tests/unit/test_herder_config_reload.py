"""Connectors whose secrets change are restarted, and no others."""

from __future__ import annotations

from collections.abc import Set

import pytest

from connect_py.api.config_provider import ConfigData, ConfigProvider
from connect_py.api.errors import ConfigError
from connect_py.config.config_provider import ConfigResolver
from connect_py.herder.config_reload import ConfigReload
from connect_py.herder.request_queue import RequestQueue
from connect_py.testing import FakeClock

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
    """A herder's thread, its clock, and what it restarts."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.vault = Vault()
        self.queue = RequestQueue(self.clock)
        self.restarted: list[str] = []
        self.held = True
        self.reload = ConfigReload(ConfigResolver({"v": self.vault}), self.queue, self.restart)

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
            for action in self.queue.due():
                action()
        return list(self.restarted)


@pytest.fixture
def world() -> World:
    made = World()
    made.reload.watch("c", CONFIG)
    return made


def test_a_connector_restarts_when_its_values_have_changed_and_then_is_watched_on(world: World) -> None:
    assert world.after(25) == []
    world.vault.password = "two"
    assert world.after(10) == ["c"]
    assert world.after(25) == []
    world.vault.password = "three"
    assert world.after(10) == ["c"]


def test_a_task_that_starts_with_newer_values_does_not_spare_the_others(world: World) -> None:
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


@pytest.mark.parametrize("config", [{**CONFIG, "config.action.reload": "NONE"}, {"name": "c", "password": "plain"}])
def test_who_does_not_want_it_or_has_nothing_that_ends_is_left_alone(world: World, config: dict[str, str]) -> None:
    world.reload.watch("c", config)
    world.vault.password = "two"
    assert world.after(30) == []


def test_a_connector_that_left_is_forgotten(world: World) -> None:
    world.held = False
    world.vault.password = "two"
    assert world.after(10) == ["c"]
    world.vault.password = "three"
    assert world.after(30) == []
