"""What trainers and the command say to a node agent over its unix socket, and what it answers: JSON, one message a line.

No state depends on a message having arrived: facts in the arena carry the truth, messages ask, hint and wait.
"""

from __future__ import annotations

from typing import Any

import msgspec


class Hello(msgspec.Struct, tag="hello", frozen=True):
    """A trainer introduces itself.

    Attributes:
        holding: slots whose lease it has from an earlier agent of this node.
        keep_last, keep_every: how many committed steps stay on the target (`hinan.Keep`).
        ram_bytes: the user's RAM budget for this node; None for whatever there is room for.
    """

    run_id: str
    attempt: int
    rank: int
    local_ranks: int
    world_size: int
    pid: int
    start_ticks: int
    holding: list[str] = []
    keep_last: int | None = None
    keep_every: int | None = None
    ram_bytes: int | None = None


class Lease(msgspec.Struct, tag="lease", frozen=True):
    """Ask for a slot to fill next; answered by Granted when there is one, or Refused.

    Attributes:
        holding: slots the asker may still write into; every other lease it had has ended (a copy that failed).
        device: PCI address of the device that will write the image; a new slot is made on its NUMA node.
    """

    image_bytes: int
    holding: list[str] | None = None
    device: str | None = None


class Sealed(msgspec.Struct, tag="sealed", frozen=True):
    """Hint: a `.sealed` or `.lost` fact was published; look now rather than at the next tick."""


class Settle(msgspec.Struct, tag="settle", frozen=True):
    """Wait until every sealed image in the arena is proven; answered by Done."""


class Read(msgspec.Struct, tag="read", frozen=True):
    """Take read leases on slots: they keep their bytes until released or until this connection ends."""

    slots: list[str]


class Release(msgspec.Struct, tag="release", frozen=True):
    """Give back all read leases of this connection."""


class Watch(msgspec.Struct, tag="watch", frozen=True):
    """Wait until a step is held everywhere (`held`) or committed on the target (`committed`), or has failed."""

    attempt: int
    step: int
    moment: str


class Status(msgspec.Struct, tag="status", frozen=True):
    """Ask for the agent's state, for people and programs."""


class Close(msgspec.Struct, tag="close", frozen=True):
    """The training loop of this rank ends on purpose; answered when the last due step is committed or has failed."""

    step: int
    keep_ram: bool


class Stop(msgspec.Struct, tag="stop", frozen=True):
    """End the agent: finish what fits in `grace_s`, keep the arena."""

    grace_s: float


Request = Hello | Lease | Sealed | Settle | Read | Release | Watch | Status | Close | Stop


class Granted(msgspec.Struct, tag="granted", frozen=True):
    """A lease: this slot is the asker's to fill."""

    slot: str
    image_bytes: int


class Refused(msgspec.Struct, tag="refused", frozen=True):
    """No. `kind`: fenced, budget, full, unknown, failed; `reason` for people."""

    kind: str
    reason: str


class Done(msgspec.Struct, tag="done", frozen=True):
    """Yes, or it has happened. `detail` as the request documents."""

    detail: dict[str, Any] = {}


Answer = Granted | Refused | Done


class Ask(msgspec.Struct, frozen=True):
    """A numbered request; the answer bears the same number. Answers may come in any order."""

    number: int
    body: Request


class Reply(msgspec.Struct, frozen=True):
    """An answer, and what every answer brings along.

    Attributes:
        news: failures in the background since this connection was last told.
        failed_in_a_row: drain rounds that failed since the last commit.
        committed: newest step committed on the target (0: none).
        drain_s: seconds the last drain round took.
    """

    number: int
    body: Answer
    news: list[str] = []
    failed_in_a_row: int = 0
    committed: int = 0
    drain_s: float | None = None


ask_decoder = msgspec.json.Decoder(Ask)
reply_decoder = msgspec.json.Decoder(Reply)


def line(message: Ask | Reply) -> bytes:
    """A message as it goes over the socket."""
    return msgspec.json.encode(message) + b"\n"
