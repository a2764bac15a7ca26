"""Numbers that must come out, each with its formula and source."""
