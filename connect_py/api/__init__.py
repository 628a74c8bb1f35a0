"""What plugin authors import, and the only part of the worker that a plugin may see.

| module | holds |
|---|---|
| `connector`, `task` | `SinkConnector`, `SourceConnector`, `SinkTask`, `SourceTask` and their contexts |
| `record`, `schema` | `SinkRecord`, `SourceRecord`, `Headers`; `Schema`, `Struct` |
| `batch`, `arrow` | `Batch`, `Column`, `Origin`; Arrow types and conversions (imports pyarrow) |
| `converter`, `transformation`, `predicate` | the stages between Kafka and a task |
| `config` | `ConfigDef` and validators |
| `errors` | the error tree |

Importing this package imports the standard library only.
"""  # noqa: E501 - a table or a literal is wider
