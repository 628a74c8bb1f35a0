"""The parts of `IcebergSinkTask`: what a poll brought, its conversion, key changes, and the turn of
the channel."""
