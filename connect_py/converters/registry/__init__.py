"""Access to schema registries, and the wire format that their converters share."""
