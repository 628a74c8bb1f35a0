"""Semantics of Java: strings, numbers, dates, regular expressions, and errors."""
