"""TLS settings of Java: key stores, cipher suites, and contexts for HTTP clients and servers."""
