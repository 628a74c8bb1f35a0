"""JSON with and without Connect schemas: `org.apache.kafka.connect.json.JsonConverter`."""
