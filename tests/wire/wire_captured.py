"""Where the captured machines are: HINAN_SHARED names their folder, or `../shared` beside the checkout."""

import os
from pathlib import Path


def shared_folder() -> Path | None:
    """The folder of captured machines, or None. They are not part of the project."""
    told = os.environ.get("HINAN_SHARED")
    folder = Path(told) if told else Path(__file__).parents[3] / "shared"
    return folder / "cases/wire" if (folder / "cases/wire").is_dir() else None
