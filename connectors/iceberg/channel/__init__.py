"""The channel topic between tasks and coordinator, and the events for outside listeners."""
