"""The coordinator thread of task 0, which performs the actions of the protocol."""
