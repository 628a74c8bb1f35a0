"""Tools that read the dead-letter table and replay its records."""
