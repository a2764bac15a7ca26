"""Intervals of all tiers found together, and the three witnesses of what they cost."""
