"""Routers of the REST API, one module per resource. Each module builds a router for a herder."""
