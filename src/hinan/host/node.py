"""This host's name in facts and paths."""

from __future__ import annotations

import os
import socket

LONGEST_NAME = 48


def node_name() -> str:
    """HINAN_NODE if set, else the host name; only characters that are safe in a file name."""
    name = os.environ.get("HINAN_NODE") or socket.gethostname() or "localhost"
    return "".join(c if c.isalnum() or c in "-_." else "_" for c in name)[:LONGEST_NAME].lstrip(".") or "localhost"
