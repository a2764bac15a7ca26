"""The typed model of a machine, and what follows from one device or link by itself."""
