"""The coordinator thread in task 0, which performs the actions of the commit protocol."""
