"""JSON with a schema registry: `io.confluent.connect.json.JsonSchemaConverter`."""
