"""The Iceberg sink's exactly-once commit protocol, as state machines without I/O.

`docs/protocol.md` defines its rules. The state machines do not depend on Kafka, Spark, Arrow,
threads, or clocks, and the current time is an argument. `CoordinatorState` and `TaskState` return
actions (`actions`). Their owners perform the actions and pass the results back. A seeded simulation
injects every known kind of fault into both state machines
(`tests/property/iceberg_protocol_world.py`).

| module | contents |
|---|---|
| `positions` | `Position` (generation, next), `Epoch`, and `Bounds`; per-partition maps in JSON |
| `packed` | compact encoding of integer columns |
| `rules` | `ProtocolRules`: the decisions that the numbered rules require |
| `ledger` | ledger in snapshots and in the table property, `look_up`, and `TableVersion` |
| `offset_metadata` | metadata that the sink commits with the group offsets |
| `last_commits` | last commit to each table, in the offset metadata; detects a restored catalog |
| `messages` | messages on the channel topic and their encoding |
| `actions` | actions that the state machines return |
| `task_state`, `coordinator_state` | the state machines |
| `task_partition` | state of one partition in a task, including its open (unreported) range |
| `source_progress` | positions of partitions and tables, floors, and rewinds |
| `table_opening` | offsets from which an opened table needs rows |
| `commit_cycle` | one cycle, from the accepted ranges to the released offsets |
| `commit_request`, `table_metadata` | request and outcome of one commit; the table's metadata |
| `own_refs` | names of branches and tags created by the sink |
| `unpublished_commits` | commits awaiting approval |
| `alter_offsets` | deliberate rewind or skip while the connector is stopped |
| `faults` | fault points at which a test can interrupt the process |
| `iceberg_metrics` | the sink's metrics |

The last two modules are not part of the state machines. They are in this package because tasks, the
coordinator, and the Spark driver all depend on it. A fault point marks a protocol step in any of
these processes, and the metrics use the types in `commit_request`.

Terms: the channel is the topic on which the tasks and the coordinator exchange messages. An epoch
is one run of a coordinator. A ledger contains the positions of all partitions after a commit, and
the commit stores it in the table. A generation is the number of deliberate rewinds of a partition.

The owner of a new coordinator fences the previous one (`init_transactions`), reads the channel to
its end, describes the topics, reads the group offsets and the tables, and calls `begin`. Then, each
commit cycle has these steps:

    tasks                                   coordinator                               table
    drop rows below E, stage all other rows 1 StartCommit(cycle, floors)      ->
    2 CloseFiles: close the files,
      describe the topics,
      Report [start, next) per partition -> 3 accept contiguous ranges,
                                              reject other ranges with Rewind
                                            4 LoadTable; check the version, and
                                              lower bound <= E <= first row
                                              [first ledger: ProveLeadership]
                                              [rolled back: ReadGroupOffsets]
                                              CommitTable(files, ledger, version) -> not yet visible
                                            5 compare-and-swap of the version     -> visible
    7 commit floor and metadata          <- 6 CommitComplete(floors);
      to the group                            Rewind if a table is behind

E is the offset from which a table needs rows from a partition. The floor is the partition's lowest
E over all tables. Every number in these messages is absolute. Therefore, any of them may be lost,
delayed, or repeated.

Fault points (`faults`), the step of each, and the state that a crash at that point leaves behind:

    before_start_commit      1  nothing
    after_start_commit       1  a cycle without a coordinator; the next epoch detaches all tasks
    before_close_files       2  orphan files from this epoch; `CleanFiles` deletes them after the
                                next epoch's first commit to the same table
    after_close_files        2  as for before_close_files
    after_report             2  a range whose sender has crashed; the range is accepted, and the
                                partition's next owner starts at the end of the range
    after_accept             3  ranges that were not applied; the next epoch starts at the floor
    before_prepare           4  as for after_accept
    before_compare_and_swap  4  possibly an invisible snapshot; a paused coordinator's swap fails
    after_compare_and_swap   5  some tables ahead of other tables, and rows below E are read again
                                and dropped; or an unknown outcome, which the ledger resolves
    before_commit_complete   6  tables ahead of the group; rows are read again and dropped
    after_commit_complete    6  the group behind the tables; the next epoch computes the floors
    before_group_commit      7  as for after_commit_complete
    after_group_commit       7  nothing

The staged files of a refused range remain until a later epoch deletes them, because a commit with
an unknown outcome may refer to them.
"""
