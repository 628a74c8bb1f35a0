"""Java's TLS settings: key stores, cipher suites, and contexts for HTTP clients and servers."""
