"""Log lines: Connect's pattern, JSON on demand, and levels from command line and properties."""

from __future__ import annotations

import json
import logging
import subprocess
import sys

import pytest

from connect_py.api.errors import ConfigError
from connect_py.config.worker_definitions import log_levels

PROGRAM = """
import logging
from connect_py.log_context import LogLine, log_context
from connect_py.log_output import configure_logging, set_log_levels

configure_logging({form!r})
set_log_levels({levels!r})
log = logging.getLogger("a.b")
with log_context("orders", 0):
    log.warning("late by %d s", 3, extra={{"action": "late"}})
    try:
        1 / 0
    except ZeroDivisionError:
        log.exception("no")
    child = LogLine.of(logging.makeLogRecord({{"name": "a.c", "levelno": logging.INFO, "msg": "from a child"}}))
child.emit()
log.debug("fine")
logging.getLogger("other").info("quiet")
"""  # noqa: E501 - a table or a literal is wider


def lines(form: str = "text", **levels: str) -> list[str]:
    """Return the lines that a process with these settings writes to standard output."""
    program = PROGRAM.format(form=form, levels=levels)
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=30, check=True
    )
    assert done.stderr == ""
    return done.stdout.splitlines()


def test_text_lines_are_in_connects_pattern_and_traces_follow_them() -> None:
    said = lines()
    assert said[0].partition("] ")[2] == "WARN [orders|task-0] late by 3 s (a.b:10)"
    assert said[1].partition("] ")[2] == "ERROR [orders|task-0] no (a.b:14)"
    assert said[-3:][0] == "ZeroDivisionError: division by zero"
    assert "INFO [orders|task-0] from a child (a.c:" in said[-2]
    assert said[-1].endswith("INFO quiet (other:18)")


def test_json_lines_carry_connector_task_trace_and_fields() -> None:
    late, failed, child, quiet = map(json.loads, lines("json"))
    expected = {
        "level": "WARN",
        "logger": "a.b",
        "message": "late by 3 s",
        "connector": "orders",
        "task": 0,
    }
    assert expected.items() <= late.items()
    assert late["action"] == "late"
    assert late["timestamp"].endswith("+00:00")
    assert failed["trace"].startswith("Traceback")
    assert failed["trace"].endswith("division by zero")
    assert (child["message"], child["connector"]) == ("from a child", "orders")
    assert not {"connector", "task", "trace"} & quiet.keys()


def test_root_level_applies_to_loggers_without_their_own_level() -> None:
    assert [line for line in lines(**{"a.b": "debug"}) if "fine" in line]
    assert not [
        line for line in lines(root="ERROR", other="OFF") if "WARN" in line or "quiet" in line
    ]
    assert len([line for line in lines(root="warn") if "child" in line]) == 0


def test_levels_of_the_properties_name_loggers_or_all() -> None:
    found = log_levels("connect_py.log.levels", ["warn", "connect_py.herder = Debug"])
    assert found == {"root": "WARN", "connect_py.herder": "DEBUG"}
    with pytest.raises(ConfigError, match="invalid level 'a=LOUD'"):
        log_levels("connect_py.log.levels", ["a=LOUD"])
    assert logging.getLogger().level != logging.DEBUG  # reading sets nothing
