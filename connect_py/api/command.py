"""For subcommands of `connect-py` that plugins bring (entry points of the group `connect_py.commands`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, TypeVar

from connect_py.api.errors import ConnectError
from connect_py.api.service import SharedServices

if TYPE_CHECKING:
    from pathlib import Path

    from connect_py.api.pipeline import PipelineFactory

F = TypeVar("F", bound=Callable[..., object])

JAVA = "__connect_py_uses_java__"


def uses_java(command: F) -> F:
    """Mark a command, or a function that returns checks, which starts a JVM.

    Before it runs, the environment says where Java and Spark's jars are. For a command, the jars are fetched if they
    are not there yet, as by `connect-py jars spark`.
    """
    setattr(command, JAVA, True)
    return command


class _Provided:
    """What `connect-py` has for its commands."""

    make: Callable[[], SharedServices] | None = None
    made: SharedServices | None = None
    pipelines: Callable[[Mapping[str, str], Path | None], PipelineFactory] | None = None


def provide_services(make: Callable[[], SharedServices] | None) -> None:
    """Say where `command_services` comes from: for `connect-py`, and for tests of commands."""
    _Provided.make, _Provided.made = make, None


def command_services() -> SharedServices:
    """Return shared services for the command that runs: their programs end with it. They have no worker's settings.

    Raises:
        ConnectError: The function was not called by `connect-py`.
    """
    if _Provided.made is None:
        if _Provided.make is None:
            raise ConnectError("shared services are there for commands of connect-py only")
        _Provided.made = _Provided.make()
    return _Provided.made


def provide_pipelines(make: Callable[[Mapping[str, str], Path | None], PipelineFactory] | None) -> None:
    """Say where `pipeline_factory` has pipelines from: for `connect-py`, and for tests of commands."""
    _Provided.pipelines = make


def pipeline_factory(connector: Mapping[str, str], worker: Path | None = None) -> PipelineFactory:
    """The record pipelines of a connector.

    Args:
        connector: Its configuration.
        worker: The worker's properties file: converters that the connector does not name, and `plugin.path`.

    Raises:
        ConnectError: The function was not called by a command of `connect-py`.
    """
    if _Provided.pipelines is None:
        raise ConnectError("pipelines are there for commands of connect-py only")
    return _Provided.pipelines(connector, worker)
