#!/bin/sh
# Become a part of a Spark cluster, of the very Spark that the worker has:
#   connect-py-spark org.apache.spark.deploy.master.Master --host 0.0.0.0 --port 7077
set -eu
SPARK_HOME=$(python -c 'from importlib.util import find_spec; print(*find_spec("pyspark").submodule_search_locations)')
export SPARK_HOME
exec "$SPARK_HOME/bin/spark-class" "$@"
