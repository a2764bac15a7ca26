"""The answer: which tiers within which limits, what it loses, what binds it, what would change it."""
