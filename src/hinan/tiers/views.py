"""What each tier shows to a restart: facts and files turned into the values that `core.decide` ranks."""

from __future__ import annotations

from pathlib import Path

from hinan.core.agenda import Stored
from hinan.core.decide import Image, View
from hinan.core.errors import FormatError, HinanError
from hinan.core.ids import StepId, manifest_file, step_directory
from hinan.formats.digest import Proof, damages
from hinan.formats.image import header_bytes
from hinan.formats.records import ManifestRecord, ProvenRecord, SealedRecord, fact_sum
from hinan.host.signals import ours
from hinan.tiers.arena import Arena, SlotFiles
from hinan.tiers.mapping import map_file, read_header
from hinan.tiers.reading import Reading
from hinan.tiers.target import COMMIT, Target


def arena_view(arena: Arena, node: str, *, verify: bool = False, before_settling: bool = False) -> View:
    """The RAM of this node.

    Args:
        before_settling: no agent was asked to take the digests that are still missing. A restart does that first, so a
            sealed image counts as usable, with a late digest.
        verify: take all digests again instead of trusting the proofs; what differs becomes a flaw.
    """
    if not arena.exists:
        return View("ram", node, "empty", detail=f"{arena.root} does not exist")
    sealed = [(files, files.sealed) for files in arena.scan() if files.sealed is not None]
    lost = arena.lost()
    images = tuple(
        _ram_image(arena, files, seal, verify=verify, before_settling=before_settling)
        for files, seal in sealed
        if seal.step_id not in lost
    )
    return View("ram", node, "present" if images else "empty", images, detail=str(arena.root))


def _ram_image(arena: Arena, files: SlotFiles, sealed: SealedRecord, *, verify: bool, before_settling: bool) -> Image:
    proven = files.proven
    flaw = None
    if before_settling and (proven is None or (proven.attempt, proven.step) != sealed.step_id):
        return Image(sealed.step_id, files.rank, sealed.world_size, files.name, files.image_bytes, None, late_digest=True)
    if proven is None or (proven.attempt, proven.step) != sealed.step_id:
        flaw = "sealed, but no digests were taken yet"
    elif files.image_bytes != sealed.image_bytes:
        flaw = f"{files.image_bytes} bytes instead of {sealed.image_bytes}"
    elif verify:
        flaw = flaw_of(map_file(arena.path(files.name)), sealed, proven, str(arena.path(files.name)))
    late = proven is not None and proven.late
    return Image(sealed.step_id, files.rank, sealed.world_size, files.name, files.image_bytes, flaw, late)


def target_view(target: Target, node: str, *, verify: bool = False) -> View:
    """The target. `verify` reads every image."""
    if not target.root.is_dir():
        return View("target", node, "absent", detail=f"{target.root} is not there")
    images: list[Image] = []
    for step_id, stored in target.stored().items():
        if stored.buried:
            continue
        images += target_images(target, step_id, stored, verify=verify)
    return View("target", node, "present" if images else "empty", tuple(images), detail=str(target.root))


def target_images(target: Target, step_id: StepId, stored: Stored, *, verify: bool) -> list[Image]:
    """A step's images. What a committed step lacks, and a record that cannot be read, show as flaws: both have a reason."""
    world_size, ranks = stored.world_size, set(stored.ranks)
    why = target.problem(step_id, COMMIT)
    if why is not None:
        return [Image(step_id, 0, 1, COMMIT, 0, why)]
    if stored.committed:
        ranks = set(range(world_size))
    elif not world_size:
        why = next(iter(target.problems_of(step_id)), None)
        unfinished = "it is unfinished: no image stands there with its manifest"
        return [Image(step_id, 0, 1 if why else 0, step_directory(step_id), 0, why or unfinished)]
    return [_target_image(target, step_id, rank, world_size, verify=verify) for rank in sorted(ranks)]


def _target_image(target: Target, step_id: StepId, rank: int, world_size: int, *, verify: bool) -> Image:
    path = target.image_path(step_id, rank)
    place = str(path.relative_to(target.root))
    try:
        manifest = _checked_manifest(target, step_id, rank)
        size_bytes = path.stat().st_size
        expected = manifest.sealed.image_bytes
        flaw = None if size_bytes == expected else f"{place} has {size_bytes} bytes instead of {expected}"
        if flaw is None and verify:
            _, flaw = read_checked(path, manifest.sealed, manifest.proven, place)
        return Image(step_id, rank, world_size, place, size_bytes, flaw, manifest.proven.late)
    except ours(FileNotFoundError):
        return Image(step_id, rank, world_size, place, 0, f"{place} is missing")
    except ours(OSError, HinanError) as error:
        return Image(step_id, rank, world_size, place, 0, f"{place}: {error}")


def _checked_manifest(target: Target, step_id: StepId, rank: int) -> ManifestRecord:
    """A manifest that says what its place says, and that the commit record (if there is one) names.

    Raises:
        FormatError: it is missing, misplaced (files were swapped) or not the one that was committed.
    """
    manifest = target.manifest(step_id, rank)
    if manifest is None:
        raise FormatError(target.problem(step_id, manifest_file(rank)) or "its manifest is missing")
    if manifest.sealed.step_id != step_id or manifest.sealed.rank != rank:
        raise FormatError(f"the manifest is that of {manifest.sealed.step_id}, rank {manifest.sealed.rank}")
    commit = target.commit_record(step_id)
    if commit is not None and fact_sum(target.manifest_bytes(step_id, rank)) != commit.manifest_sums[rank]:
        raise FormatError(f"the manifest of rank {rank} is not the one that was committed")
    return manifest


def flaw_of(image: memoryview, sealed: SealedRecord, proven: ProvenRecord, name: str, threads: int = 1) -> str | None:
    """What is wrong with an image's bytes, naming file and tensor; None if every digest is right.

    Args:
        threads: that take digests; a restart has the processor for itself.
    """
    try:
        raw, header = read_header(image, name)
    except FormatError as error:
        return str(error)
    if (flaw := _flaw_of_header(raw, len(image), sealed, name)) is not None:
        return flaw
    return next((f"{name}: {damage}" for damage in damages(header, image, proven, threads)), None)


def _flaw_of_header(raw: bytes, image_bytes: int, sealed: SealedRecord, name: str) -> str | None:
    if image_bytes != sealed.image_bytes:
        return f"{name} has {image_bytes} bytes instead of {sealed.image_bytes}"
    if fact_sum(raw) != sealed.header_sum:
        return f"{name}: its header has changed"
    return None


def read_checked(path: Path, sealed: SealedRecord, proven: ProvenRecord, name: str) -> tuple[memoryview, str | None]:
    """Read an image from a disk, and check what has arrived while the rest is read; (image, what is wrong with it).

    Raises:
        OSError: it cannot be read.
        FormatError: it became shorter while it was read.
    """
    with Reading(path) as reading:
        image = reading.view
        reading.wait_for(min(8, len(image)))
        try:
            length = header_bytes(image[:8], name)
        except FormatError as error:
            return image, str(error)
        reading.wait_for(min(length, len(image)))
        try:
            raw, header = read_header(image, name)
        except FormatError as error:
            return image, str(error)
        if (flaw := _flaw_of_header(raw, len(image), sealed, name)) is not None:
            return image, flaw
        proof, at = Proof(header, proven), 0
        while at < len(proof.chunks):
            wanted = proof.chunks[at]
            stop = proof.first_after(reading.wait_for(wanted.offset + wanted.size_bytes))
            if found := proof.damages(image, at, stop):
                return image, f"{name}: {found[0]}"
            at = stop
        reading.wait_for(len(image))
        return image, next((f"{name}: {damage}" for damage in proof.foreign), None)
