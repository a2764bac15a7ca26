"""The benchmark: every figure that hinan promises, measured beside its floor (docs/performance.md)."""
