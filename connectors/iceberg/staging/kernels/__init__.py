"""Kernels: from the values of one incoming type to those of one column's, array by array."""
