"""`connect-py load`: a task of the sink whose ranges are read and staged by Spark's executors."""
