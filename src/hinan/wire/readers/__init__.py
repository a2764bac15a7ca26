"""Readers: each turns one kind of description into a `Machine`; `sources.py` picks them by content."""
