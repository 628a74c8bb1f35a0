"""The HTTP face of a worker: Kafka Connect's REST API over the `Herder` interface.

A request passes `HttpRules` (paths, verbs, media types), one router function, the herder, and comes
back through `entities` or `errors`. Nothing here blocks the event loop.
"""
