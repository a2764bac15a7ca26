"""A year of a job, second by second, under one policy or another."""
