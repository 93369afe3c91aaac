"""Takes symbols and debugging information off programs and libraries: ``python -m k8s.image.strip FOLDER``.

They stand behind everything that is loaded, with the table of sections, and only debuggers read them. ``strip`` of
binutils does the same, and the base image has no binutils. Files that are not ELF of 64 bits, little-endian, stay as
they are.
"""

from __future__ import annotations

import struct
import sys
from pathlib import Path
from typing import Final

MAGIC: Final = b"\x7fELF\x02\x01"
HEADER: Final = struct.Struct("<32xQ14xHH6x")
"""Of the file: place of the table of segments, size of an entry, number of entries."""
SECTIONS: Final = ((40, 8), (60, 2), (62, 2))
"""Place, number and names of the sections in the header: offset and bytes."""
SEGMENT: Final = struct.Struct("<8xQ16xQ")
"""A segment's place in the file, and its size there."""


def loaded_bytes(content: bytes | bytearray) -> int | None:
    """Bytes from the start of a file that a loader may read; ``None`` if it is no program and no library."""
    if not content.startswith(MAGIC) or len(content) < HEADER.size:
        return None
    segments, entry, number = HEADER.unpack_from(content)
    ends = [sum(SEGMENT.unpack_from(content, segments + index * entry)) for index in range(number)]
    return max([segments + number * entry, *ends]) if number else None


def strip(path: Path) -> int:
    """Cut a file behind what is loaded; returns by how many bytes."""
    content = bytearray(path.read_bytes())
    end = loaded_bytes(content)
    if end is None or end >= len(content):
        return 0
    for offset, size in SECTIONS:
        content[offset : offset + size] = bytes(size)
    path.write_bytes(content[:end])
    return len(content) - end


def main() -> int:
    """Strip every file below the folder that the command line names; prints what it came to."""
    (folder,) = sys.argv[1:]
    files = [path for path in Path(folder).rglob("*") if path.is_file() and not path.is_symlink()]
    print(f"stripped {sum(map(strip, files)) // 1_000_000} MB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
