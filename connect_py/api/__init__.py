"""Public API for plugin authors.

Plugins may also import the packages `columns`, `java`, `tls`, and `process`, and the module
`plurals`, but no other module of the worker.

| module | contents |
|---|---|
| `connector`, `task` | `SinkConnector`, `SourceConnector`, `SinkTask`, `SourceTask` and their contexts |
| `record`, `schema` | `SinkRecord`, `SourceRecord`, `Headers`; `Schema`, `Struct` |
| `batch` | `Batch`, `Column`, `Origin`; Arrow types and conversions are in `connect_py.columns` |
| `converter`, `transformation`, `predicate` | the stages between Kafka and a task |
| `config` | `ConfigDef` and validators |
| `errors` | the error classes |

Importing this package loads only the standard library.
"""  # noqa: E501 - wide table
