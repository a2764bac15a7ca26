"""The explorer: a small deterministic world that plays seeded schedules of kills and faults over `hinan.core`.

Owns:      a model of hosts, arenas, the target, trainers and agents; the invariants; the planted bugs.
Promises:  the same seed and rules give the same schedule, event by event, on every machine.
Relies on: `hinan.core` for every decision and every transition; it defines none of its own.
Never:     touches a real file, process, clock or socket.

Run it with `python -m hinan.sim --seeds 1000`; docs/explorer.md explains what it plays and how to read a transcript.
"""
