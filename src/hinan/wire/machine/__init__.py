"""One machine put together from all that was read of it, and washed of its names."""
