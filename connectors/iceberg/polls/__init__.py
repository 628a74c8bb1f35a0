"""What a task does with a poll: which tables its rows need, their conversion, partitions that wait, the channel.

| module | holds |
|---|---|
| `poll` | what the current poll brought so far |
| `row_tables` | the tables that rows go to, and partitions that wait for one |
| `row_conversion` | rows and dead letters converted, bad ones reported |
| `key_change_holds` | partitions that stop before the insert of a changed key |
| `task_actions` | carries out what `TaskState` asks for |
| `channel_turn` | between polls: the channel, credentials, what the status shows |
"""
