"""Carries out what the protocol decides: the thread in task 0, its tables, its retries."""
