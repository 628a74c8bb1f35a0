"""Outlets of a coordinator: OpenLineage events, and notices for operators."""
