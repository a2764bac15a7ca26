"""A saved state put back into live objects: all of it compared first, then written."""
