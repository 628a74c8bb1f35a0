"""The modules that plugin authors import.

Plugins may also import the building blocks `columns`, `java`, `tls`, and `process`, but nothing
else of the worker.

| module | contents |
|---|---|
| `connector`, `task` | `SinkConnector`, `SourceConnector`, `SinkTask`, `SourceTask` and their contexts |
| `record`, `schema` | `SinkRecord`, `SourceRecord`, `Headers`; `Schema`, `Struct` |
| `batch` | `Batch`, `Column`, `Origin`; Arrow types and conversions are in `connect_py.columns` |
| `converter`, `transformation`, `predicate` | the stages between Kafka and a task |
| `config` | `ConfigDef` and validators |
| `errors` | the error classes |

Importing this package imports the standard library only.
"""  # noqa: E501 - a table or a literal is wider
