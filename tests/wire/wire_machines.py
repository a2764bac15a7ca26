"""Texts as one machine, and the report of one of its GPUs."""

from hinan.wire import sources
from hinan.wire.case import Question
from hinan.wire.model import Machine
from hinan.wire.report import Report, report_gpu


def machine(*texts: str) -> Machine:
    """Texts as one machine."""
    return sources.read_texts(texts)


def report(found: Machine, index: int = 0, **question: object) -> Report:
    """The report of GPU `index`."""
    gpu = next(g for g in found.gpus if g.index == index)
    return report_gpu(found, gpu, Question(**question))  # type: ignore[arg-type]
