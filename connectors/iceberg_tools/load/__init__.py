"""Implementation of `connect-py load`, in which Spark executors read and stage a task's ranges."""
