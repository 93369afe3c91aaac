"""The intake of a snapshot: it collects the chunks on disk, and then makes a state store that begins with the snapshot.

Each chunk is checked and made durable when it arrives. Chunks survive a restart, so an interrupted intake continues
with the missing ones. Until the last step the folder holds no store. That step writes the log's first segment, then the
base that names the snapshot.
"""

from __future__ import annotations

from validator.primitives.types import Hash, Height
from validator.state.log import MANIFEST_NAME, begin_with_snapshot, chunk_name, drop_snapshot, snapshot_meta
from validator.state.snapshot import Manifest, SnapshotError, decode_chunk
from validator.storage.disk import Disk


class SnapshotIntake:
    """Intake of the snapshot of one height, whose state root is proved by a finalization."""

    def __init__(self, disk: Disk, folder: str, height: Height, root: Hash) -> None:
        self.height = height
        self.root = root
        self.manifest: Manifest | None = None
        self._disk = disk
        self._folder = folder
        self._missing: set[int] = set()
        self._resume()

    @property
    def is_complete(self) -> bool:
        """Whether all chunks have arrived."""
        return self.manifest is not None and not self._missing

    def missing(self) -> list[int]:
        """The chunks that have not arrived, ascending."""
        return sorted(self._missing)

    def take_manifest(self, data: bytes) -> None:
        """Take the manifest. Raises :class:`SnapshotError` if it is for another root."""
        if self.manifest is None:
            self._begin(Manifest.decode(data, self.height, self.root))
            self._disk.replace(f"{self._folder}/{MANIFEST_NAME}", data)

    def take_chunk(self, chunk: int, data: bytes) -> None:
        """Take a chunk; a duplicate is ignored. Raises :class:`SnapshotError` if it is wrong."""
        if self.manifest is None or chunk not in self._missing:
            return
        decode_chunk(self.manifest, chunk, data)
        self._disk.replace(chunk_name(self._folder, chunk), data)
        self._missing.discard(chunk)

    def install(self) -> None:
        """Make a state store on disk that begins with the snapshot. The caller can then open it.

        Raises :class:`SnapshotError` if the manifest left out twigs that hold live keys. The manifest and its chunks
        are dropped then.
        """
        assert self.manifest is not None and self.is_complete, "a snapshot is installed whole"
        manifest = self.manifest
        live = 0
        for chunk in range(manifest.chunks):
            data = self._disk.read(chunk_name(self._folder, chunk))
            live += sum(len(twig.entries) for twig in decode_chunk(manifest, chunk, data))
        if live != manifest.live:
            drop_snapshot(self._disk, self._folder)
            raise SnapshotError(f"the manifest's twigs hold {live} live keys of {manifest.live}")
        meta = snapshot_meta(manifest.height, self.root, manifest.next_position)
        begin_with_snapshot(self._disk, self._folder, meta, manifest.first_twig, manifest.peaks)

    def _begin(self, manifest: Manifest) -> None:
        self.manifest = manifest
        self._missing = set(range(manifest.chunks))

    def _resume(self) -> None:
        """Resume from the files of an earlier intake of the same state root. Files of another root are removed."""
        data = self._disk.read(f"{self._folder}/{MANIFEST_NAME}")
        if not data:
            return
        try:
            self._begin(Manifest.decode(data, self.height, self.root))
        except SnapshotError:
            drop_snapshot(self._disk, self._folder)
            return
        for chunk in self.missing():
            content = self._disk.read(chunk_name(self._folder, chunk))
            if content and self._is_sound(chunk, content):
                self._missing.discard(chunk)

    def _is_sound(self, chunk: int, content: bytes) -> bool:
        """Whether a chunk on the disk is unchanged since it was checked."""
        assert self.manifest is not None, "chunks belong to one"
        try:
            decode_chunk(self.manifest, chunk, content)
        except SnapshotError:
            return False
        return True
