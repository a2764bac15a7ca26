"""The image: whatever is laid out, safetensors opens; whatever was changed in a header, nothing wrong comes of it."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors import SafetensorError, safe_open

from hinan.core.errors import FormatError, FormatFromFuture
from hinan.formats.digest import box_records, chunks, damages
from hinan.formats.image import ALIGNMENT_BYTES, ITEM_BYTES, PADDING_NAME, Entry, TensorView, lay_out, parse_header
from hinan.formats.records import BoxRecord, ProvenRecord
from hinan.trainer.state.layout import SAFETENSORS_WORD

DTYPE = {word: dtype for dtype, word in SAFETENSORS_WORD.items()}

names = st.text(st.characters(codec="utf-8"), min_size=1, max_size=12).filter(lambda n: not n.startswith("__"))
shapes = st.lists(st.integers(0, 5), max_size=3).map(tuple)
entries = st.dictionaries(names, st.tuples(st.sampled_from(sorted(ITEM_BYTES)), shapes), max_size=8).map(
    lambda found: [Entry(name, dtype, shape) for name, (dtype, shape) in found.items()]
)


def image_of(found: list[Entry], seed: int = 0) -> tuple[bytes, bytearray]:
    """(header, whole image) with random bytes in every entry."""
    raw, header = lay_out(found, {})
    image = bytearray(header.image_bytes)
    image[: len(raw)] = raw
    random = np.random.default_rng(seed)
    for entry in header.entries:
        data = random.integers(0, 2 if entry.dtype == "BOOL" else 256, entry.size_bytes, dtype=np.uint8)
        image[entry.offset : entry.offset + entry.size_bytes] = data.tobytes()
    return raw, image


@settings(max_examples=60, deadline=None)
@given(found=entries, seed=st.integers(0, 2**16))
def test_safetensors_opens_every_image_and_shows_equal_bytes(
    found: list[Entry], seed: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """`safe_open` reads what we lay out, in any order of dtypes and shapes, and shows exactly those bytes."""
    raw, image = image_of(found, seed)
    path = tmp_path_factory.getbasetemp() / "image.safetensors"
    path.write_bytes(image)
    header = parse_header(raw, len(image), "image")
    with safe_open(path, "pt") as opened:
        assert set(opened.keys()) - {PADDING_NAME} == {entry.name for entry in found}
        for entry in header.entries:
            tensor = opened.get_tensor(entry.name)
            assert (tensor.dtype, tuple(tensor.shape)) == (DTYPE[entry.dtype], entry.shape)
            shown = tensor.reshape(-1).view(torch.uint8).numpy().tobytes() if tensor.numel() else b""
            assert shown == bytes(image[entry.offset : entry.offset + entry.size_bytes])


@settings(max_examples=150, deadline=None)
@given(found=entries)
def test_images_have_no_holes_and_are_aligned(found: list[Entry]) -> None:
    """Entries follow each other without a gap from an aligned start to an aligned end, each aligned to its item size."""
    raw, header = lay_out(found, {})
    assert header.data_start == len(raw) and len(raw) % ALIGNMENT_BYTES == 0 and header.image_bytes % ALIGNMENT_BYTES == 0
    at = header.data_start
    for entry in header.entries:
        assert entry.offset == at
        assert entry.offset % ITEM_BYTES[entry.dtype] == 0
        at += math.prod(entry.shape) * ITEM_BYTES[entry.dtype]
    assert 0 <= header.image_bytes - at < ALIGNMENT_BYTES
    assert {e.name for e in header.entries} == {e.name for e in found}


@settings(max_examples=60, deadline=None)
@given(found=entries, data=st.data())
def test_views_come_back_as_they_were(found: list[Entry], data: st.DataObject) -> None:
    """Views of entries (ties, strides, dtypes that safetensors cannot say) are read as they were written."""
    views = {
        f"view {i}": TensorView(entry.name, "float8_e8m0fnu", (2, 3), (0, 1), i)
        for i, entry in enumerate(found)
        if data.draw(st.booleans())
    }
    raw, header = lay_out(found, views)
    assert dict(parse_header(raw, header.image_bytes, "image").views) == views


SIMPLE = [Entry("w", "F32", (3, 4)), Entry("b", "BF16", (5,)), Entry("n", "I64", ())]


@settings(max_examples=400, deadline=None)
@given(at=st.floats(0, 1, exclude_max=True), byte=st.integers(0, 255))
def test_a_changed_header_is_refused_or_harmless(at: float, byte: int) -> None:
    """A header with any one byte replaced is refused as a FormatError, or still describes every byte exactly once."""
    raw, header = lay_out(SIMPLE, {"tie": TensorView("w", "float32", (12,), (1,), 0)})
    changed = bytearray(raw)
    text_end = len(raw.rstrip())
    changed[8 + int(at * (text_end - 8))] = byte
    try:
        found = parse_header(bytes(changed), header.image_bytes, "image")
    except FormatError as error:
        assert "image" in str(error)
        return
    assert sum(e.size_bytes for e in found.entries) in range(66, header.image_bytes - header.data_start + 1)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


@settings(max_examples=200, deadline=None)
@given(
    value=json_values,
    place=st.sampled_from([(), ("w",), ("w", "dtype"), ("w", "shape"), ("w", "data_offsets"), ("__metadata__",),
                           ("__metadata__", "hinan")]),
)  # fmt: skip
def test_a_header_with_any_json_in_it_is_refused_as_such(value: object, place: tuple[str, ...]) -> None:
    """Whatever stands in a header in the place of what we write there: a FormatError with the file's name, nothing else."""
    raw, header = lay_out(SIMPLE, {})
    described = msgspec.json.decode(raw[8:])
    at = described
    for key in place[:-1]:
        at = at[key]
    if place:
        at[place[-1]] = value
    else:
        described = value
    try:
        text = msgspec.json.encode(described)
    except (UnicodeEncodeError, msgspec.EncodeError, ValueError):
        return  # JSON that nobody can write
    text = text.ljust(len(raw) - 8)
    try:
        parse_header(len(text).to_bytes(8, "little") + text, header.image_bytes, "image")
    except FormatError as error:
        assert "image" in str(error)


def test_a_layout_from_the_future_is_refused_with_both_versions() -> None:
    """A newer layout version is named together with the newest that is read."""
    raw, header = lay_out(SIMPLE, {})
    newer = raw.replace(b'\\"version\\":1', b'\\"version\\":7')
    assert newer != raw
    with pytest.raises(FormatFromFuture, match=r"layout version 7.*up to 1"):
        parse_header(newer, header.image_bytes, "image")


@pytest.mark.parametrize("data", [b"", b"\0" * 7, b"\0" * 8, b"\xff" * 64, b"[" * 4096, b"PK\3\4" + b"\0" * 64])
def test_foreign_bytes_are_no_image(data: bytes, tmp_path: Path) -> None:
    """A file that is something else is refused by name, as safetensors refuses it too."""
    from hinan.tiers.mapping import read_header

    with pytest.raises(FormatError, match="foreign"):
        read_header(memoryview(data), "foreign")
    (tmp_path / "foreign").write_bytes(data)
    with pytest.raises((SafetensorError, OSError)), safe_open(tmp_path / "foreign", "pt"):
        pass


def proof(image: bytearray, raw: bytes, chunk_bytes: int) -> ProvenRecord:
    header = parse_header(raw, len(image), "image")
    return ProvenRecord(1, 1, 0, "", chunk_bytes, box_records(header, memoryview(image), chunk_bytes), late=False)


@settings(max_examples=100, deadline=None)
@given(found=entries, chunk_bytes=st.sampled_from([1, 7, 64, 4096]), data=st.data())
def test_any_flipped_bit_of_a_tensor_is_found_and_named(found: list[Entry], chunk_bytes: int, data: st.DataObject) -> None:
    """Whatever the chunk size, a flipped bit anywhere in a tensor is found, with the tensor and a chunk that holds it; no
    other is accused; a bit of the padding accuses nobody."""
    raw, image = image_of(found)
    proven = proof(image, raw, chunk_bytes)
    header = parse_header(raw, len(image), "image")
    assert list(damages(header, memoryview(image), proven)) == []
    if header.data_start == len(image):
        return
    at = data.draw(st.integers(header.data_start, len(image) - 1))
    image[at] ^= 1 << data.draw(st.integers(0, 7))
    hurt = [e.name for e in header.entries if e.offset <= at < e.offset + e.size_bytes]
    found_damage = list(damages(header, memoryview(image), proven))
    assert [d.chunk.box for d in found_damage] == hurt
    for damage in found_damage:
        assert damage.chunk.offset <= at < damage.chunk.offset + damage.chunk.size_bytes
        assert repr(hurt[0]) in str(damage)


def test_a_tensor_that_one_side_lacks_is_damage() -> None:
    """A proof without one of the tensors, or with one more, does not pass for a proof of this image."""
    raw, image = image_of(SIMPLE)
    header, proven = parse_header(raw, len(image), "image"), proof(image, raw, 64)
    (lacking,) = damages(header, memoryview(image), replace(proven, boxes=proven.boxes[1:]))
    assert lacking.chunk.box == proven.boxes[0].name
    more = replace(proven, boxes=[*proven.boxes, BoxRecord("ghost", [1], [0], ["00"])])
    (ghost,) = damages(header, memoryview(image), more)
    assert ghost.chunk.box == "ghost"


@given(size=st.integers(0, 100), chunk_bytes=st.integers(1, 40))
def test_chunks_cover_an_entry_exactly(size: int, chunk_bytes: int) -> None:
    """The chunks of an entry are its bytes, once each, in order; an empty one has one empty chunk."""
    found = list(chunks(Entry("e", "U8", (size,), 4096), chunk_bytes))
    assert [c.index for c in found] == list(range(len(found)))
    assert found[0].offset == 4096 and sum(c.size_bytes for c in found) == size
    assert all(a.offset + a.size_bytes == b.offset for a, b in itertools.pairwise(found))
