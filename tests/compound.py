"""Writes small compound files (MS-CFB, version 3), which Outlook messages and old workbooks are made of."""

from __future__ import annotations

import struct
from collections.abc import Mapping

FREE, END, FAT = 0xFFFFFFFF, 0xFFFFFFFE, 0xFFFFFFFD
SECTOR, MINI, CUTOFF = 512, 64, 4096

Tree = Mapping[str, "bytes | Tree"]


def compound_file(tree: Tree) -> bytes:
    """A file with these streams, and storages of further streams."""
    entries: list[dict[str, int | str | bytes]] = [{"name": "Root Entry", "kind": 5, "child": FREE, "data": b""}]
    _add(entries, 0, tree)
    mini = b""
    mini_fat: list[int] = []
    for entry in entries[1:]:
        data = entry["data"]
        assert isinstance(data, bytes)
        if entry["kind"] == 2 and 0 < len(data) < CUTOFF:
            count = -(-len(data) // MINI)
            entry["start"] = len(mini_fat)
            mini_fat += [*range(len(mini_fat) + 1, len(mini_fat) + count), END]
            mini += data.ljust(count * MINI, b"\0")
    sectors: list[bytes] = []
    fat: list[int] = []

    def store(data: bytes) -> int:
        if not data:
            return END
        start = len(sectors)
        count = -(-len(data) // SECTOR)
        sectors.extend(data[i * SECTOR : (i + 1) * SECTOR].ljust(SECTOR, b"\0") for i in range(count))
        fat.extend([*range(start + 1, start + count), END])
        return start

    for entry in entries[1:]:
        data = entry["data"]
        assert isinstance(data, bytes)
        if entry["kind"] == 2 and len(data) >= CUTOFF:
            entry["start"] = store(data)
    entries[0]["start"] = store(mini)
    entries[0]["size"] = len(mini)
    mini_fat_start = store(b"".join(struct.pack("<I", one) for one in mini_fat))
    directory_start = store(b"".join(map(_entry, entries)))
    fat_sectors = 1
    while (len(fat) + fat_sectors) > fat_sectors * SECTOR // 4:
        fat_sectors += 1
    fat_start = len(sectors)
    fat += [FAT] * fat_sectors
    fat += [FREE] * (fat_sectors * SECTOR // 4 - len(fat))
    sectors.append(b"".join(struct.pack("<I", one) for one in fat))
    header = struct.pack(
        "<8s16sHHHHH6xIIIIIIIIII",
        b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", b"", 0x3E, 3, 0xFFFE, 9, 6,
        0, fat_sectors, directory_start, 0, CUTOFF, mini_fat_start if mini_fat else END, -(-len(mini_fat) * 4 // SECTOR), END, 0,
        fat_start,
    )  # fmt: skip
    header += b"".join(struct.pack("<I", fat_start + i if i < fat_sectors else FREE) for i in range(1, 109))
    return header.ljust(SECTOR, b"\0") + b"".join(sectors)


def _add(entries: list[dict[str, int | str | bytes]], parent: int, tree: Tree) -> None:
    # A red-black tree may be a list to the right when its names are in order (section 2.6.4).
    before: int | None = None
    for name in sorted(tree, key=lambda name: (len(name), name.upper())):
        value = tree[name]
        number = len(entries)
        is_stream = isinstance(value, bytes)
        entries.append({"name": name, "kind": 2 if is_stream else 1, "child": FREE, "data": value if is_stream else b""})
        if before is None:
            entries[parent]["child"] = number
        else:
            entries[before]["right"] = number
        before = number
        if not is_stream:
            _add(entries, number, value)


def _entry(entry: dict[str, int | str | bytes]) -> bytes:
    name = str(entry["name"]).encode("utf-16-le") + b"\0\0"
    data = entry["data"]
    assert isinstance(data, bytes)
    return struct.pack(
        "<64sHBBIII16sI8x8xIQ",
        name, len(name), entry["kind"], 1, FREE, entry.get("right", FREE), entry["child"], b"", 0,
        entry.get("start", END if entry["kind"] == 2 else 0), entry.get("size", len(data)),
    )  # fmt: skip
