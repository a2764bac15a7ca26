"""What was measured, how it fits the links, and what is wrong with a machine: evidence, effect, cure."""
