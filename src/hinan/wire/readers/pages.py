"""Where the pages of a mapped file are: virtual address, physical frame, NUMA node.

Owns:      reading /proc/self/pagemap for a mapping of our own, and its refusal to make numbers up.
Promises:  each page says what is *read*. Without root the kernel gives frame 0: that is shown as unknown. Only pages
           that are present are listed; nothing is written to the file.
Relies on: pagemap's layout: 64 bits per page, bit 63 present, bits 54:0 frame (kernel admin-guide/mm/pagemap). Memory
           blocks below /sys/devices/system/node tell the node of a frame.
Never:     claims that the address stays: unpinned pages migrate; in a VM it is guest-physical.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import re
from pathlib import Path

import msgspec

from hinan.core.errors import ConfigError
from hinan.wire.facts.text import hex_number

PAGE_BYTES = mmap.PAGESIZE
"""Of this machine; so many bytes follow one another in a frame. Of a huge page more do, which pagemap does not say."""

_PRESENT, _FRAME = 1 << 63, (1 << 55) - 1


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """One page of the mapping. physical None: not readable (no root), or not present."""

    offset_bytes: int
    virtual: int
    physical: int | None
    node: int | None
    label: str


def pages_of(path: Path, *, count: int = 4, root: Path = Path("/")) -> tuple[Page, ...]:
    """The first page of a file in tmpfs (or the page cache), its last, and others evenly between: `count` at most.

    The file is mapped read-only and these pages are touched.

    Raises:
        ConfigError: the file is missing, empty or cannot be mapped.
    """
    try:
        with path.open("rb") as file:
            length = os.fstat(file.fileno()).st_size
            if length == 0:
                raise ConfigError(f"{path} is empty: it has no pages", path=str(path))
            mapping = mmap.mmap(file.fileno(), length, prot=mmap.PROT_READ)
    except (OSError, ValueError) as error:
        raise ConfigError(f"cannot map {path}: {error}", path=str(path)) from error
    offsets = [index * PAGE_BYTES for index in spread(-(-length // PAGE_BYTES), count)]
    with mapping:
        start = _address_of(mapping)
        touched = {offset: mapping[offset] for offset in offsets}  # present from here on
        entries = [_pagemap(start + offset, root) for offset in touched]
    blocks = node_blocks(root)
    return tuple(_page(offset, start + offset, entry, blocks) for offset, entry in zip(offsets, entries, strict=True))


def spread(pages: int, count: int) -> list[int]:
    """At most `count` (2 or more) of the numbers 0 to pages - 1: the first, the last, and others evenly between."""
    return sorted({index * (pages - 1) // (count - 1) for index in range(count)})


def _address_of(mapping: mmap.mmap) -> int:
    """The virtual address of a read-only mapping, through the buffer protocol."""

    class Buffer(ctypes.Structure):
        _fields_ = (
            ("buf", ctypes.c_void_p),
            ("obj", ctypes.py_object),
            ("len", ctypes.c_ssize_t),
            ("itemsize", ctypes.c_ssize_t),
            ("readonly", ctypes.c_int),
            ("ndim", ctypes.c_int),
            ("format", ctypes.c_char_p),
            ("shape", ctypes.c_void_p),
            ("strides", ctypes.c_void_p),
            ("suboffsets", ctypes.c_void_p),
            ("internal", ctypes.c_void_p),
        )

    view = Buffer()
    api = ctypes.pythonapi
    if api.PyObject_GetBuffer(ctypes.py_object(mapping), ctypes.byref(view), 0):
        raise ConfigError("the mapping has no address")
    try:
        return int(view.buf)
    finally:
        api.PyBuffer_Release(ctypes.byref(view))


def _pagemap(virtual: int, root: Path) -> int | None:
    try:
        with (root / "proc/self/pagemap").open("rb", buffering=0) as file:
            file.seek(virtual // PAGE_BYTES * 8)
            data = file.read(8)
    except OSError:
        return None
    return int.from_bytes(data, "little") if len(data) == 8 else None


def frame_of(entry: int | None) -> int | None:
    """Physical frame number of a pagemap entry; None when it is absent, not present, or hidden (zero)."""
    if entry is None or not entry & _PRESENT or not entry & _FRAME:
        return None
    return entry & _FRAME


def _page(offset: int, virtual: int, entry: int | None, blocks: dict[int, int]) -> Page:
    frame = frame_of(entry)
    if frame is None:
        return Page(offset_bytes=offset, virtual=virtual, physical=None, node=None, label="unknown (root needed)")
    physical = frame * PAGE_BYTES
    block = blocks.get(-1)
    node = blocks.get(physical // block) if block else None
    return Page(offset_bytes=offset, virtual=virtual, physical=physical, node=node, label="read")


def node_blocks(root: Path = Path("/")) -> dict[int, int]:
    """Memory block number -> node, from sysfs; key -1 holds the block size [bytes]. Empty where the kernel has none."""
    folder = root / "sys/devices/system"
    try:
        size = hex_number((folder / "memory/block_size_bytes").read_text(errors="replace"))
    except OSError:
        return {}
    if not size:
        return {}
    blocks = {-1: size}
    try:
        entries = list((folder / "node").glob("node[0-9]*/memory[0-9]*"))
    except OSError:
        return {}
    for entry in entries:
        if re.fullmatch(r"node[0-9]{1,5}/memory[0-9]{1,9}", f"{entry.parent.name}/{entry.name}"):
            blocks[int(entry.name[6:])] = int(entry.parent.name[4:])
    return blocks
