"""One module per resource; each builds its router around a herder."""
