"""Protobuf with a schema registry: `io.confluent.connect.protobuf.ProtobufConverter`."""
