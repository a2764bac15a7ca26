"""Decisions: values in, values out. No clock, file, socket, process or torch is touched below this line.

The product, the explorer in `hinan.sim` and the tests run the same functions.
"""
