"""Kafka Connect's REST API on top of the `Herder` interface.

A request passes through `HttpRules` (paths, verbs, media types), a router function, and the
herder. `entities` and `errors` build the response. No function blocks the event loop.
"""
