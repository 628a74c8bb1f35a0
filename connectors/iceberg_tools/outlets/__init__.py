"""Outlets of the coordinator: OpenLineage events and notices for operators."""
