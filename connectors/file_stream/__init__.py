"""FileStreamSource and FileStreamSink connectors. Each line of a file is a record."""

from __future__ import annotations

from connect_py.api.plugin import Plugin, PluginKind

_JAVA = "org.apache.kafka.connect.file"

PLUGINS = (
    Plugin(
        PluginKind.SINK,
        f"{_JAVA}.FileStreamSinkConnector",
        "connectors.file_stream.file_stream_sink:FileStreamSinkConnector",
        task_class=f"{_JAVA}.FileStreamSinkTask",
    ),
    Plugin(
        PluginKind.SOURCE,
        f"{_JAVA}.FileStreamSourceConnector",
        "connectors.file_stream.file_stream_source:FileStreamSourceConnector",
        task_class=f"{_JAVA}.FileStreamSourceTask",
    ),
)
