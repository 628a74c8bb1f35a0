"""Levels of loggers as requests see and change them."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Mapping

import pytest

from connect_py.api.errors import NotFoundError
from connect_py.clock import Clock
from connect_py.herder.herder import LoggerLevel
from connect_py.herder.logger_levels import LoggerLevels


class FixedClock(Clock):
    now = 1000

    def monotonic(self) -> float:
        return 0.0

    def time_ms(self) -> int:
        return self.now


class Children:
    def __init__(self) -> None:
        self.told: list[Mapping[str, int | None]] = []

    def __call__(self, levels: Mapping[str, int | None]) -> None:
        self.told.append(levels)


@pytest.fixture
def name() -> str:
    """A logger that no other test knows."""
    return f"levels{uuid.uuid4().hex}"


@pytest.fixture
def children() -> Children:
    return Children()


@pytest.fixture
def levels(children: Children) -> LoggerLevels:
    return LoggerLevels(FixedClock(), children)


def test_children_learn_at_once_what_the_command_line_has_set(name: str) -> None:
    logging.getLogger(name).setLevel(logging.ERROR)
    children = Children()
    LoggerLevels(FixedClock(), children)
    assert children.told[0][name] == logging.ERROR
    assert children.told[0][""] == logging.getLogger().level
    assert f"{name}.below" not in children.told[0]


def test_level_reaches_all_child_loggers_and_lists_the_changed_ones(
    name: str, levels: LoggerLevels, children: Children
) -> None:
    logging.getLogger(f"{name}.a").setLevel(logging.DEBUG)
    logging.getLogger(f"{name}.b").setLevel(logging.ERROR)
    assert levels.set(name, "DEBUG") == [name, f"{name}.b"]
    assert children.told[-1] == {name: logging.DEBUG, f"{name}.b": logging.DEBUG}
    assert logging.getLogger(f"{name}.new.below").getEffectiveLevel() == logging.DEBUG
    assert levels.of(f"{name}.b") == LoggerLevel("DEBUG", 1000)
    assert levels.of(f"{name}.a") == LoggerLevel("DEBUG", None)


def test_setting_the_same_again_changes_nothing(
    name: str, levels: LoggerLevels, children: Children
) -> None:
    assert levels.set(name, "TRACE") == [name]
    FixedClock.now = 2000
    assert levels.set(name, "TRACE") == []
    FixedClock.now = 1000
    assert levels.of(name).last_modified == 1000
    assert len(children.told) == 2  # at the beginning, and once


def test_logger_set_to_its_inherited_level_exists_afterwards(
    name: str, levels: LoggerLevels
) -> None:
    logging.getLogger(
        f"{name}.below"
    )  # creates a placeholder with this name, which is not a logger
    with pytest.raises(NotFoundError, match=f"Logger {name} not found."):
        levels.of(name)
    inherited = levels.of("root").level
    assert levels.set(name, inherited) == []
    assert levels.of(name) == LoggerLevel(inherited, None)


def test_what_is_off_is_left_out_of_the_list_only(name: str, levels: LoggerLevels) -> None:
    levels.set(name, "OFF")
    assert name not in levels.all()
    assert levels.of(name).level == "OFF"
    assert not logging.getLogger(name).isEnabledFor(logging.CRITICAL)


def test_logger_list_is_sorted_and_finds_root_in_any_case(name: str, levels: LoggerLevels) -> None:
    logging.getLogger(name)
    listed = levels.all()
    assert list(listed) == sorted(listed)
    assert levels.of("ROOT") == listed["root"]
    assert name in listed
