"""The exactly-once protocol of the Iceberg sink: plain data in, decisions out. `docs/protocol.md`
has its rules.

Nothing in this package knows Kafka, Spark, Arrow, threads or clocks; time is an argument.
`CoordinatorState` and `TaskState` return actions (`actions`), their owners carry them out and bring
the answers back. A seeded simulation drives both through every fault that we could think of
(`tests/property/iceberg_protocol_world.py`).

| module | holds |
|---|---|
| `positions` | `Position` (generation, next), `Epoch`; maps by partition as JSON |
| `ledger` | what a snapshot and the table property say; `look_up` judges it; `TableVersion` |
| `offset_metadata` | the metadata of our group offsets |
| `last_commits` | what the marks remember of the tables, for the day when a catalog goes back in time |
| `messages` | what travels on the channel topic, and its bytes |
| `actions` | what the state machines ask for |
| `task_state`, `coordinator_state` | the state machines |
| `task_partition` | one partition of a task, and what its open range holds |
| `source_progress`, `table_opening` | what is known of partitions and tables, and where a table begins |
| `commit_cycle` | one cycle, from the ranges it takes to what it releases |
| `commit_request`, `table_metadata` | what is asked of Spark, and the table as its metadata describe it |
| `alter_offsets` | a deliberate rewind or skip while the connector is stopped |

A life of a coordinator begins with: fence the one before (`init_transactions`), read the channel to
its end, describe the topics, read the group's offsets and the known tables; `begin`. A cycle
(numbers of the design):

    tasks                                        coordinator                                 table
    rows below E dropped, others staged          1 StartCommit(cycle, floors)          ->
    2 CloseFiles: close, describe the topics,
      Report [start, next) per partition   ->    3 accept what continues, else Rewind
                                                 4 LoadTable; version known? each range's
                                                   lower bound <= E <= first row?
                                                   [first ledger: ProveLeadership]
                                                   [rolled back: ReadGroupOffsets]
                                                   CommitTable(files, ledger, version)  ->   not yet visible
                                                 5 compare-and-swap of the version      ->   visible
    7 floor and mark to the group          <-    6 CommitComplete(floors); Rewind where a table is behind

E is the offset from which one table still needs rows of one partition; the floor is the lowest E.
Every number in every message is absolute, so any message may be lost, late or doubled.

Fault points (`connectors.iceberg.protocol.faults`), their step, and what a death there leaves for whom:

    before_start_commit      1  nothing is left
    after_start_commit       1  a cycle that no coordinator collects: the next epoch detaches all tasks
    before_close_files       2  orphan files of this epoch: `CleanFiles`, after the next epoch's own commit there
    after_close_files        2  the same
    after_report             2  a range that counts although its sender is gone: the next owner learns its end
    after_accept             3  ranges that were not applied: the next epoch starts at the floor
    before_prepare           4  the same
    before_compare_and_swap  4  perhaps an invisible snapshot or a branch; a sleeper's swap fails
    after_compare_and_swap   5  some tables ahead of others: rows read again fall below E; or an outcome that
                                the process never learned: the ledger knows
    before_commit_complete   6  tables ahead of the group: the same
    after_commit_complete    6  group behind the tables: the next epoch releases from its own computation
    before_group_commit      7  the same
    after_group_commit       7  nothing is left

A staged file that a refused range leaves behind stays until a later epoch cleans: an unknown commit
may still refer to it.
"""  # noqa: E501 - a table or a literal is wider
