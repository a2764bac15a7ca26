"""Places that hold images and facts: the arena in RAM and the target. One verb writes a fact on each of them: `publish`."""
