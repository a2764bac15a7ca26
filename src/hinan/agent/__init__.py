"""The node agent: owns the RAM copies of a node, proves them, and drains them to slower tiers. Never imports torch."""
