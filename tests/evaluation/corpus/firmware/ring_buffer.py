"""A ring buffer of measurements that outlives a power cut."""

from pathlib import Path


class RingBuffer:
    """Keeps the newest measurements; the oldest are written over when it is full."""

    def __init__(self, path: Path, capacity: int = 4096) -> None:
        self.path = path
        self.capacity = capacity
        self.head = 0

    def append(self, record: bytes) -> None:
        """Write one record and move the head; a record is valid once its checksum byte is there."""
        slot = self.head % self.capacity
        with self.path.open("r+b") as file:
            file.seek(slot * 32)
            file.write(record.ljust(31, b"\0") + bytes([checksum(record)]))
        self.head += 1

    def flush_to_card(self, card: Path) -> int:
        """Copy what is valid to the memory card, oldest first; returns how many records."""
        count = 0
        for record in self.valid_records():
            (card / f"{count:08d}.rec").write_bytes(record)
            count += 1
        return count

    def valid_records(self) -> list[bytes]:
        """The records whose checksum is right."""
        data = self.path.read_bytes()
        slots = [data[start : start + 32] for start in range(0, len(data), 32)]
        return [slot[:31] for slot in slots if slot[31:] == bytes([checksum(slot[:31])])]


def checksum(record: bytes) -> int:
    """The sum of all bytes, modulo 251, so that a slot full of zeros is never valid."""
    return (sum(record) + 17) % 251
