"""Performs the actions of the protocol: the thread in task 0, its tables, and its retries."""
