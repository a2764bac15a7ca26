"""Which way bytes go through a machine: hops, ends, who else goes there, and what that leaves."""
