"""The shape of the answer to `hinan wire`, and what of it is promised to programs (docs/wire.md). Unknown is null."""

from __future__ import annotations

from typing import Any

import msgspec

from hinan.wire.checks.findings import Finding

SUMMARY = (
    "gpu", "numa_node", "hops", "narrowest", "ceiling_bytes_per_s", "all_ranks_ceiling_bytes_per_s",
    "measured_bytes_per_s", "seconds", "labels", "findings",
)  # fmt: skip
SUMMARY_GPU = ("address", "name")
SUMMARY_HOP = ("address", "kind", "cap_gt_s", "now_gt_s", "width", "mps", "shared_with")


class Hop(msgspec.Struct, frozen=True, kw_only=True):
    """One function on the path. width: lanes in use, or possible where the use is unknown."""

    address: str
    kind: str
    name: str | None
    cap_gt_s: float | None
    now_gt_s: float | None
    width: int | None
    cap_width: int | None
    mps: int | None
    node: int | None
    shared_with: tuple[str, ...]
    ceiling_bytes_per_s: float | None


class Named(msgspec.Struct, frozen=True):
    """A GPU's address (short form) and product name."""

    address: str | None
    name: str | None
    index: int


class LegReport(msgspec.Struct, frozen=True, kw_only=True):
    """GPU to a drive or NIC: peer to peer or via RAM, hop by hop; `at_root` hops come before the root complex.

    Of a GPU that reaches RAM otherwise: from RAM, the one way of its state that is known to be PCIe.
    """

    name: str
    device: str
    hops: tuple[Hop, ...]
    at_root: int | None
    narrowest: str | None
    ceiling_bytes_per_s: float | None
    as_built_bytes_per_s: float | None  # as of the report
    seconds: float | None
    as_built_seconds: float | None
    distance: int | None
    why: str

    @property
    def runs_below_capability(self) -> bool:
        """As of the report."""
        return (self.as_built_bytes_per_s or 0.0) > (self.ceiling_bytes_per_s or 0.0)


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """Everything `hinan wire --gpu N` says."""

    gpu: Named | None
    numa_node: int | None
    hops: tuple[Hop, ...]
    narrowest: str | None
    ceiling_bytes_per_s: float | None
    all_ranks_ceiling_bytes_per_s: float | None
    measured_bytes_per_s: float | None
    seconds: float | None
    labels: dict[str, str]
    findings: tuple[Finding, ...]
    near_nodes: tuple[int, ...]  # `numa_node`, and those that are as near
    path_complete: bool
    mps_bytes: int | None
    assumed_mps_bytes: int | None
    state_bytes: int | None
    as_built_bytes_per_s: float | None  # the ceiling by capability alone; above it only where lanes or speed are lost
    all_ranks_known_bytes_per_s: float | None  # its share of the links that are told, whatever lies above them
    all_ranks_seconds: float | None
    all_ranks_measured_bytes_per_s: float | None
    all_ranks_measured_seconds: float | None
    all_ranks_measured_by: str | None
    all_ranks_impossible: str | None  # why no link carries what was measured of all; None: it is possible
    measured_seconds: float | None
    measured_by: str | None
    iommu: str | None
    iommu_groups: bool  # some device is in a group: an IOMMU is on, whatever its mode
    coherent_link: str | None
    reported_bytes_per_s: float | None
    nic: str | None
    legs: tuple[LegReport, ...]
    legs_unknown: str | None  # why nobody can say which legs there are; None: no others than `legs`
    gpus: int  # that evacuate: those that answer on the bus
    virtual: tuple[str, ...]
    sources: tuple[str, ...]
    notes: tuple[str, ...]

    @property
    def runs_below_capability(self) -> bool:
        """Do faults of links keep the ceiling below what these can do?"""
        return (self.as_built_bytes_per_s or 0.0) > (self.ceiling_bytes_per_s or 0.0)


def to_builtins(report: Report) -> dict[str, Any]:
    """Everything, as plain dictionaries and lists for JSON."""
    plain: dict[str, Any] = msgspec.to_builtins(report)
    return plain


def summary(report: Report) -> dict[str, Any]:
    """The agreed keys of `--json`, and no others: what programs may rely on (docs/wire.md)."""
    whole = to_builtins(report)
    plain = {key: whole[key] for key in SUMMARY}
    plain["hops"] = [{key: hop[key] for key in SUMMARY_HOP} for hop in whole["hops"]]
    if whole["gpu"] is not None:
        plain["gpu"] = {key: whole["gpu"][key] for key in SUMMARY_GPU}
    plain["labels"] = {key: label for key, label in whole["labels"].items() if key in (*SUMMARY, "mps")}
    return plain
