"""Exact methods for the reference targets. They share no code with the package's own."""
