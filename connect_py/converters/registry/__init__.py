"""Schema registry access, and the wire format that the registry converters share."""
