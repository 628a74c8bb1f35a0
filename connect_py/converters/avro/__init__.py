"""Avro with a schema registry: `io.confluent.connect.avro.AvroConverter`."""
