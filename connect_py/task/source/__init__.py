"""The loop of a source task: producer, topic creation, and commits of source offsets."""
