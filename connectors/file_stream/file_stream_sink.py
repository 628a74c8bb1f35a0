"""`FileStreamSinkConnector`: appends values to a file, or prints them."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import ClassVar, TextIO

from connect_py.api.config import ConfigDef, Importance, Type
from connect_py.api.connector import SinkConnector
from connect_py.api.errors import ConnectError
from connect_py.api.record import SinkRecord, TopicPartition
from connect_py.api.schema import Struct, Value
from connect_py.api.task import SinkTask

FILE = "file"


class FileStreamSinkTask(SinkTask):
    """Writes one line per record, in Java's text form; a flush makes them safe with the operating system."""

    def __init__(self) -> None:
        self._output: TextIO = sys.stdout
        self._path: str | None = None

    def start(self, props: Mapping[str, str]) -> None:
        self._path = props.get(FILE)
        if self._path is not None:
            try:
                self._output = open(self._path, "a", encoding="utf-8")  # noqa: SIM115 - closed by `stop`
            except OSError as error:
                raise ConnectError(f"Couldn't find or create file '{self._path}' for FileStreamSinkTask") from error

    def put(self, records: Sequence[SinkRecord]) -> None:
        self._output.writelines(f"{java_text(record.value)}\n" for record in records)

    def flush(self, current: Mapping[TopicPartition, int]) -> None:
        self._output.flush()

    def stop(self) -> None:
        if self._path is not None and self._output is not sys.stdout:
            self._output.close()


class FileStreamSinkConnector(SinkConnector):
    """One file for each task, all of the same name: more than one task makes sense only without a file."""

    config_def: ClassVar[ConfigDef] = ConfigDef().define(
        FILE, Type.STRING, default=None, importance=Importance.HIGH,
        doc="Destination filename. If not specified, the standard output will be used.",
    )  # fmt: skip
    task_class: ClassVar[type[SinkTask]] = FileStreamSinkTask

    def start(self, props: Mapping[str, str]) -> None:
        self.config_def.parse(props)
        self._props = dict(props)

    def task_configs(self, max_tasks: int) -> Sequence[Mapping[str, str]]:
        return [dict(self._props) for _ in range(max_tasks)]

    def alter_offsets(self, props: Mapping[str, str], offsets: Mapping[TopicPartition, int | None]) -> bool:
        """The group's offsets are all there is."""
        return True


def java_text(value: Value) -> str:
    """A value as Java prints it: null, true, 1.0, {a=1, b=[2, 3]}, Struct{a=1}."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{java_text(k)}={java_text(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(java_text, value)) + "]"
    if isinstance(value, Struct):
        inside = ",".join(f"{f.name}={java_text(v)}" for f, v in value if v is not None)
        return f"Struct{{{inside}}}"
    return str(value)
