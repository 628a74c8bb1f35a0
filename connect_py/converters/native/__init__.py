"""JSON and Avro messages as Arrow columns, by the native library built from `native/decoder`."""
