"""Decodes JSON and Avro messages to Arrow columns with the native library `native/decoder`."""
