"""For subcommands of `connect-py` that plugins bring (entry points of the group `connect_py.commands`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

F = TypeVar("F", bound=Callable[..., None])

JAVA = "__connect_py_uses_java__"


def uses_java(command: F) -> F:
    """Mark a command that starts a JVM: before it runs, the environment says where Java and Spark's jars are.

    The jars are fetched if they are not there yet, as by `connect-py jars spark`.
    """
    setattr(command, JAVA, True)
    return command
