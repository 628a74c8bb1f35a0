"""Tables as plain values."""
