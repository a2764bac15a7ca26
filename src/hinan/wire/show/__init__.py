"""Machines and paths for people and programs: the terminal's tree, JSON, pictures, explanations."""
