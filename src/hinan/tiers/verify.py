"""Checks bytes at rest: every image of a target, a step or a slot against the digests that were born with it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from hinan.core.errors import ConfigError, HinanError
from hinan.core.ids import StepId, image_file, manifest_file, parse_rank_file, parse_slot_name, parse_step_directory
from hinan.formats.digest import damages
from hinan.formats.records import ProvenRecord, SealedRecord, fact_sum
from hinan.host.signals import ours
from hinan.tiers.arena import PROVEN, SEALED, Arena
from hinan.tiers.mapping import map_file, read_header
from hinan.tiers.reading import read_file
from hinan.tiers.target import COMMIT, Target


@dataclass(frozen=True)
class Bad:
    """One file that is not what it should be. `chunks` are [first byte, end], `tensors` their names."""

    file: str
    reason: str
    chunks: list[list[int]] = field(default_factory=list)
    tensors: list[str] = field(default_factory=list)


@dataclass
class Report:
    """What was checked and what was found."""

    checked_bytes: int = 0
    checked_files: int = 0
    bad: list[Bad] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return not self.bad


def verify(path: Path, step: int | None = None) -> Report:
    """Verify a target directory, one step's directory, a slot in an arena, or one image file.

    Args:
        step: with a target: only the directories of this step.
    Raises:
        ConfigError: the path is none of these, or holds nothing to check.
    """
    report = Report()
    if path.suffix == ".img" or parse_slot_name(path.name):
        _slot(path, report)
    elif path.is_file() and parse_rank_file(path.name):
        _image(Target(path.parent.parent.parent), _step_of(path.parent), path, report)
    elif path.is_dir() and parse_step_directory(path.name):
        _step(Target(path.parent.parent), _step_of(path), report)
    elif (path / "run.json").exists():
        target = Target(path)
        target.run()
        report.bad += [Bad(str(target.root / name), why) for name, why in target.unreadable_attempts().items()]
        for step_id in target.step_ids():
            if step is None or step_id.step == step:
                _step(target, step_id, report)
    else:
        raise ConfigError(f"{path} is no target, step, image or slot of hinan; name a directory that has a run.json")
    if report.checked_files == 0 and report.ok:
        raise ConfigError(f"{path} holds nothing to verify yet")
    return report


def _step_of(directory: Path) -> StepId:
    step_id = parse_step_directory(directory.name)
    if step_id is None:
        raise ConfigError(f"{directory} is not a step's directory")
    return step_id


def _step(target: Target, step_id: StepId, report: Report) -> None:
    """Every image of a step. Of a committed one each rank must be there; of another only what is there is checked."""
    directory = target.directory(step_id)
    commit = target.commit_record(step_id)
    if commit is None and (directory / COMMIT).exists():
        file = f"{directory / COMMIT}"
        report.bad.append(Bad(file, target.problems.get(str((directory / COMMIT).relative_to(target.root)), "unreadable")))
    present = {p[0] for entry in directory.iterdir() if (p := parse_rank_file(entry.name)) and p[1] == "json"}
    ranks = range(commit.world_size) if commit is not None else sorted(present)
    for rank in ranks:
        data = target.manifest_bytes(step_id, rank)
        if commit is not None and fact_sum(data) != commit.manifest_sums[rank]:
            reason = "is missing" if not data else "is not the manifest that was committed"
            report.bad.append(Bad(str(directory / manifest_file(rank)), reason))
        _image(target, step_id, directory / image_file(rank), report)


def _image(target: Target, step_id: StepId, path: Path, report: Report) -> None:
    rank = (parse_rank_file(path.name) or (0, ""))[0]
    manifest = target.manifest(step_id, rank)
    if manifest is None:
        report.bad.append(Bad(str(path.with_name(manifest_file(rank))), "the manifest is missing or unreadable"))
        return
    if manifest.sealed.step_id != step_id or manifest.sealed.rank != rank:
        what = f"the manifest is that of {manifest.sealed.step_id}, rank {manifest.sealed.rank}"
        report.bad.append(Bad(str(path.with_name(manifest_file(rank))), what))
    _bytes(path, manifest.sealed, manifest.proven, report, from_disk=True)


def _slot(path: Path, report: Report) -> None:
    arena, name = Arena(path.parent), path.name.removesuffix(".img")
    sealed, proven = arena.fact(name + SEALED, SealedRecord), arena.fact(name + PROVEN, ProvenRecord)
    if sealed is None or proven is None or (proven.attempt, proven.step) != sealed.step_id:
        raise ConfigError(f"slot {path} holds nothing proven at the moment")
    _bytes(arena.path(name), sealed, proven, report, from_disk=False)


def _bytes(path: Path, sealed: SealedRecord, proven: ProvenRecord, report: Report, *, from_disk: bool) -> None:
    report.checked_files += 1
    try:
        image = read_file(path) if from_disk else map_file(path)
        report.checked_bytes += len(image)
        if len(image) != sealed.image_bytes:
            report.bad.append(Bad(str(path), f"{len(image)} bytes instead of {sealed.image_bytes}"))
            return
        raw, header = read_header(image, str(path))
        if fact_sum(raw) != sealed.header_sum:
            report.bad.append(Bad(str(path), "its header has changed", [[0, len(raw)]]))
            return
        found = damages(header, image, proven)
    except ours(OSError, HinanError) as error:
        report.bad.append(Bad(str(path), str(error)))
        return
    if found:
        places = [[d.chunk.offset, d.chunk.offset + d.chunk.size_bytes] for d in found]
        names = sorted({d.chunk.box for d in found})
        report.bad.append(Bad(str(path), f"{len(found)} chunks differ from their digests", places, names))
