"""Proves a sealed image: checks its header against the seal and takes the digests that travel with it from now on."""

from __future__ import annotations

from hinan.core.errors import DamageError
from hinan.formats.digest import CHUNK_BYTES, box_records
from hinan.formats.records import ProvenRecord, SealedRecord, fact_sum
from hinan.host.priority import yield_to_training
from hinan.tiers.arena import PROVEN, Arena
from hinan.tiers.mapping import map_file, read_header


def prove(arena: Arena, slot: str, sealed: SealedRecord, *, late: bool) -> ProvenRecord:
    """Publish the `.proven` fact of a slot; the fact.

    Args:
        late: the seal was found, not seen: its digests are younger than the copy and prove less.
    Raises:
        DamageError: the image's header is not the one that was sealed.
        FormatError: the image is no safetensors file any more.
    """
    yield_to_training()
    path = arena.path(slot)
    image = map_file(path)
    raw, header = read_header(image, str(path))
    if fact_sum(raw) != sealed.header_sum or len(image) != sealed.image_bytes:
        raise DamageError(f"{path}: its header is not the one that was sealed", file=str(path))
    record = ProvenRecord(
        attempt=sealed.attempt,
        step=sealed.step,
        rank=sealed.rank,
        header_sum=sealed.header_sum,
        chunk_bytes=CHUNK_BYTES,
        boxes=box_records(header, image),
        late=late,
    )
    arena.publish(slot + PROVEN, record)
    return record
