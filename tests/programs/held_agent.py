"""A node agent with points at which a test can hold it (see `points`): `python -m tests.programs.held_agent`."""

from __future__ import annotations

import sys
from typing import Any

from hinan.agent import tasks
from hinan.agent.__main__ import main
from hinan.agent.drainer import Drainer
from hinan.agent.keeper import Keeper
from tests.programs.points import around


def _effect(_: Any, effect: Any, *rest: Any) -> str:
    return effect.do.name


if __name__ == "__main__":
    around(Drainer, "_carry_out", before="agent-before-", after="agent-after-", suffix=_effect)
    around(tasks, "prove", before="agent-proving")
    around(Keeper, "lease", after="agent-leased")
    sys.exit(main())
