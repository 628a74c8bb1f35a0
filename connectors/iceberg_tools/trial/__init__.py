"""What the records of a topic would do: `connect-py try`."""
