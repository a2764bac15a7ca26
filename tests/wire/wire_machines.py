"""Texts as one machine, and the reports of its GPUs."""

from hinan.wire.checks.case import Question
from hinan.wire.facts.model import Function, Machine, Role
from hinan.wire.machine import sources
from hinan.wire.show.answer import Report
from hinan.wire.show.report import report_gpu

GB = 1e9


def machine(*texts: str) -> Machine:
    """Texts as one machine."""
    return sources.read_texts(texts)


def report(found: Machine, index: int = 0, **question: object) -> Report:
    """The report of GPU `index`."""
    gpu = next(g for g in found.gpus if g.index == index)
    return report_gpu(found, gpu, Question(**question))  # type: ignore[arg-type]


def reports(machine: Machine, **question: object) -> list[Report]:
    """Every GPU's report."""
    return [report_gpu(machine, gpu, Question(**question)) for gpu in machine.gpus]  # type: ignore[arg-type]


def of_role(machine: Machine, role: Role) -> list[Function]:
    """The functions of one role, by address."""
    return [f for _, f in sorted(machine.functions.items()) if f.role is role]


def near(value: float | None, expected_gb: float) -> bool:
    """Whether a rate is this many GB/s, as two digits show it."""
    return value is not None and abs(value / GB - expected_gb) < 0.006
