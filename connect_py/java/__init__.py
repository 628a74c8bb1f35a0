"""Java semantics: strings, numbers, dates, regular expressions, and errors."""
