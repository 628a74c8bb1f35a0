"""Messages to Arrow columns by machine code: the Python side of the library whose source is in
`native/`.

The library is optional: where it was not built, converters read columns with msgspec and pyarrow,
at a lower speed.
"""
