"""Routers for the REST API, with one module per resource. Each module builds a router."""
