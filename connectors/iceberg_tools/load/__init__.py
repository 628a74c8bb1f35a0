"""`connect-py load`: a task of the sink that has Spark's executors read and stage for it."""
