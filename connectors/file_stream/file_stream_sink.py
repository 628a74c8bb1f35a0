"""`FileStreamSinkConnector`: appends values to a file, or prints them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar, TextIO

from connect_py.api.config import ConfigDef, Importance, Type
from connect_py.api.connector import SinkConnector
from connect_py.api.errors import ConnectError
from connect_py.api.record import SinkRecord, TopicPartition
from connect_py.api.task import SinkTask
from connect_py.java.strings import java_text

FILE = "file"
STANDARD_OUTPUT = 1  # file descriptor of the worker's standard output


class FileStreamSinkTask(SinkTask):
    """Writes one line per record in Java's string format, and flushes each batch."""

    def __init__(self) -> None:
        self._output: TextIO | None = None

    def start(self, props: Mapping[str, str]) -> None:
        path = props.get(FILE)
        try:
            if path:
                self._output = open(path, "a", encoding="utf-8", newline="\n")  # noqa: SIM115 - closed by `stop`
            else:
                self._output = open(  # noqa: SIM115 - closed by `stop`
                    STANDARD_OUTPUT,
                    "w",
                    encoding="utf-8",
                    errors="replace",
                    newline="\n",
                    closefd=False,
                )
        except OSError as error:
            raise ConnectError(
                f"Couldn't find or create file '{path}' for FileStreamSinkTask"
            ) from error

    def put(self, records: Sequence[SinkRecord]) -> None:
        if self._output is not None and records:
            self._output.writelines(
                f"{java_text(record.value_schema, record.value)}\n" for record in records
            )
            # as in Java, the lines are immediately available to readers of the file
            self._output.flush()

    def flush(self, current: Mapping[TopicPartition, int]) -> None:
        if self._output is not None:
            self._output.flush()

    def stop(self) -> None:
        if self._output is not None:
            self._output.close()


class FileStreamSinkConnector(SinkConnector):
    """Appends records to a file or prints them.

    All tasks write to the same file. Multiple tasks are useful only for standard output.
    """

    config_def: ClassVar[ConfigDef] = ConfigDef().define(
        FILE,
        Type.STRING,
        default=None,
        importance=Importance.HIGH,
        doc="Destination filename. If not specified, the standard output will be used.",
    )
    task_class: ClassVar[type[SinkTask]] = FileStreamSinkTask

    def start(self, props: Mapping[str, str]) -> None:
        self.config_def.parse(props)
        self._props = dict(props)

    def task_configs(self, max_tasks: int) -> Sequence[Mapping[str, str]]:
        return [dict(self._props) for _ in range(max_tasks)]

    def alter_offsets(
        self, props: Mapping[str, str], offsets: Mapping[TopicPartition, int | None]
    ) -> bool:
        """Allow all changes, because offsets are stored only in the consumer group."""
        return True
