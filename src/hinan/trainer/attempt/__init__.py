"""One incarnation of a run: what its ranks agree on, its agent, its RAM, its cadence, and what came before it."""
