"""One Linux host as hinan sees it: processes and their ends, memory limits, cgroups and mounts, the agent's socket."""
