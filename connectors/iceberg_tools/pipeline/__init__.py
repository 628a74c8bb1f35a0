"""Pipelines in one file: a YAML file becomes connectors, and a plan says what differs from a
worker's."""
