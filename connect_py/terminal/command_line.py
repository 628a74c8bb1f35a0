"""`command_line`: the parser for `connect-py`, built from the command tables of all packages.

Help and completion read only the tables. A command's module is imported when the command runs.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import MISSING, fields, is_dataclass
from importlib import import_module
from importlib.metadata import EntryPoint
from typing import Annotated, Any, get_type_hints

import typer
from typer.core import TyperCommand, TyperGroup

from connect_py.api.command import CommandEntry, command_traits
from connect_py.terminal.command_context import LocalContext, WorkerParts
from connect_py.terminal.exit_status import UNKNOWN, errors_exit, print_error
from connect_py.terminal.worker_options import WorkerOptions

# Kafka's commands use `--bootstrap-server`, and its clients `bootstrap.servers`. Accept both.
_OTHER_SPELLINGS = {"bootstrap-servers": "bootstrap-server"}

_HELP = "A Kafka Connect-compatible worker in Python, and the tools to run it on a laptop."

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Command = Callable[..., None]


class LazyGroup(TyperGroup):
    """A command group that is declared in a table. Commands are imported when they run."""

    def __init__(
        self, entries: Iterable[CommandEntry], load: Callable[[CommandEntry], Any], **settings: Any
    ) -> None:
        """Create the group.

        An entry's name is one word, or the name of a nested group followed by more words.

        Args:
            entries: The commands. Each group precedes its commands.
            load: Imports a command and returns it as a click command.
            settings: Arguments for `TyperGroup`.
        """
        self._load = load
        self._targets: dict[str, CommandEntry] = {}
        inner: dict[str, list[CommandEntry]] = {}
        commands: dict[str, Any] = {}
        for entry in entries:
            word, _, rest = entry.name.partition(" ")
            if rest:
                inner[word].append(CommandEntry(rest, entry.summary, entry.target))
            elif entry.target:
                self._targets[word] = entry
                commands[word] = TyperCommand(word, help=entry.summary)
            else:
                inner[word] = []
                commands[word] = entry
        for word, members in inner.items():
            summary = commands[word].summary
            commands[word] = LazyGroup(
                members, load, name=word, help=summary, no_args_is_help=True, rich_markup_mode=None
            )
        super().__init__(commands=commands, **settings)

    # typer bundles click in a private package, so click's types have no public name
    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """Import and return the command that the arguments specify."""
        name, command, rest = super().resolve_command(ctx, args)
        entry = self._targets.get(name or "")
        return name, command if entry is None else self._load(entry), rest

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the full summary of each command, which click would truncate to one line."""
        rows = [(name, command.help or "") for name, command in self.commands.items()]
        with formatter.section("Commands"):
            formatter.write_dl(rows)


def command_line(entries: Iterable[CommandEntry], parts: WorkerParts) -> typer.Typer:
    """Create the command-line program `connect-py`.

    Args:
        entries: All commands and groups.
        parts: Functions that run parts of a worker inside a command.
    """

    def load(entry: CommandEntry) -> Any:
        return typer_command(entry.name.rpartition(" ")[2], _import(entry), parts)

    class Program(LazyGroup):
        """The root group. Typer instantiates this class without passing the commands."""

        def __init__(self, *, commands: Mapping[str, Any], **settings: Any) -> None:
            super().__init__(entries, load, **settings)

    program = typer.Typer(
        name="connect-py",
        cls=Program,
        help=_HELP,
        no_args_is_help=True,
        rich_markup_mode=None,  # importing rich would take 0.3 CPU seconds
        pretty_exceptions_enable=False,
        context_settings={"token_normalize_func": lambda name: _OTHER_SPELLINGS.get(name, name)},
    )
    program.callback()(_program_options)
    return program


def _print_version(requested: bool) -> None:
    if requested:
        from importlib.metadata import version

        typer.echo(f"connect-py {version('connect-py')}")
        raise typer.Exit


def _program_options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
) -> None:
    """Accept the options of `connect-py` itself."""


def all_entries(
    built_in: Iterable[CommandEntry], plugins: Iterable[EntryPoint]
) -> list[CommandEntry]:
    """Return the built-in commands and the commands that plugins provide.

    Tables that cannot be imported, commands whose names already exist, and commands without a group
    are skipped with a warning, because a defective plugin must not disable `connect-py`.
    """
    entries = {entry.name: entry for entry in built_in}
    for plugin in plugins:
        try:
            table: tuple[CommandEntry, ...] = tuple(plugin.load())
        except Exception as error:  # noqa: BLE001 - plugin code may raise any error
            print_error(f"the commands of plugin {plugin.name} are not available: {error}")
            continue
        for entry in table:
            group = entry.name.rpartition(" ")[0]
            if group and (group not in entries or entries[group].target):
                print_error(f"plugin {plugin.name}: {entry.name!r} has no command group")
            elif entries.setdefault(entry.name, entry) is not entry:
                print_error(f"plugin {plugin.name}: command {entry.name!r} already exists")
    return list(entries.values())


def typer_command(name: str, function: Command, parts: WorkerParts) -> Any:
    """Convert a command function to a click command."""
    program = typer.Typer(add_completion=False, rich_markup_mode=None)
    program.command(name)(bind(function, parts))
    return typer.main.get_command(program)


def bind(function: Command, parts: WorkerParts) -> Command:
    """Wrap a function for typer, without the context parameter.

    The signature of the wrapper includes the options that all commands share. Each call creates a
    context, maps errors to an exit status, and stops everything that the command has started.
    """
    traits = command_traits(function)
    _, *declared = inspect.signature(function, eval_str=True).parameters.values()
    groups: dict[str, Any] = {each.name: each.annotation for each in declared if _is_group(each)}
    if traits.worker:
        groups["worker_options"] = WorkerOptions
    parameters = [
        inner
        for each in declared
        for inner in (_expand(each.annotation) if each.name in groups else [_keyword(each)])
    ]
    if traits.json:
        parameters.append(_option("as_json", AsJson, False))
    if traits.worker:
        parameters += _expand(WorkerOptions)

    def run(**options: Any) -> None:
        values = {
            name: group(**{field.name: options.pop(field.name) for field in fields(group)})
            for name, group in groups.items()
        }
        as_json = traits.json and options.pop("as_json")
        worker = values.pop("worker_options", None)
        with errors_exit(traits.failure_status), ExitStack() as closing:
            context = LocalContext(traits, parts, closing, as_json=as_json, worker=worker)
            function(context, **values, **options)

    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined] # read by typer
    run.__annotations__ = {each.name: each.annotation for each in parameters}
    run.__name__, run.__doc__ = function.__name__, function.__doc__
    return run


def _is_group(parameter: inspect.Parameter) -> bool:
    return isinstance(parameter.annotation, type) and is_dataclass(parameter.annotation)


def _expand(group: Any) -> list[inspect.Parameter]:
    """Return the fields of a dataclass as parameters."""
    hints: Mapping[str, Any] = get_type_hints(group, include_extras=True)
    return [
        _option(
            field.name,
            hints[field.name],
            inspect.Parameter.empty if field.default is MISSING else field.default,
        )
        for field in fields(group)
    ]


def _option(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation
    )


def _keyword(parameter: inspect.Parameter) -> inspect.Parameter:
    return parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)


def _import(entry: CommandEntry) -> Command:
    module, _, name = entry.target.partition(":")
    try:
        function: Command = getattr(import_module(module), name)
    except (ImportError, AttributeError) as error:
        print_error(f"command {entry.name!r} is not available: {error}")
        raise typer.Exit(UNKNOWN) from error
    return function
