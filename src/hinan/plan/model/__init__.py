"""The question: how often things fail, what a machine can do, what is to be saved, and what that costs."""
