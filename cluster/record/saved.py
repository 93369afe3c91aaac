"""The record of a run as data, which another process can read: the file of a run's folder, and a part of a checkpoint.

:data:`SavedRecord` and :data:`SavedValidator` are made from the fields of the record's classes. A validator's blocks
are references to a chain, with the blocks that differ from it. A change of the fields needs another
:data:`RECORD_FORMAT`.

======================  ============================================================================================
line of the file        content
======================  ============================================================================================
1                       the format's name and number
2                       BLAKE3 of all that follows, in hex
rest                    a :data:`SavedRecord`, a JSON object, compressed by zlib
======================  ============================================================================================
"""

from __future__ import annotations

import json
import zlib
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar, get_type_hints

import msgspec
from blake3 import blake3
from pydantic import BaseModel, ValidationError

from cluster.common.errors import BadInput
from cluster.common.files import write_atomically
from cluster.common.wording import printable
from cluster.record.archive import BLOCKS_FILE, GENESIS_FILE, BlockRecord
from cluster.record.chain_store import BlockStore, FileBlocks, ServedBlocks, as_stored, differing_places
from cluster.record.finalizations import Finalizations
from cluster.record.folder import RECORD_FILE
from cluster.record.genesis_file import read_genesis
from cluster.record.run import MAX_SAMPLES, RunRecord, Sample, ValidatorRecord
from cluster.scenario import Scenario
from consensus.keys import SCHEMES

T = TypeVar("T")

RECORD_FORMAT: Final = 1
SHOWN_DIGITS: Final = 9
"""The most digits of another format's number that are shown."""
MAX_TEXT_BYTES: Final = 1 << 30
"""The most bytes of a record's JSON text that are read. A validator and height take about 20 bytes."""


class Damaged(BadInput):
    """A file is incomplete or was changed. The message is one line."""


# --- the structure --------------------------------------------------------------------------------------------------


class SavedBlocks(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The blocks that a validator served, without those of a chain."""

    first_height: int
    count: int
    differing: dict[int, BlockRecord]
    """The blocks that are not the chain's, keyed by height."""

    @classmethod
    def of(cls, blocks: Sequence[BlockRecord], first_height: int, chain: Sequence[BlockRecord]) -> SavedBlocks:
        """``chain`` begins at height 1."""
        same = chain[first_height - 1 : first_height - 1 + len(blocks)]
        places = [each for each in differing_places(blocks, same) if blocks[each] != same[each]]
        places += range(len(same), len(blocks))
        return cls(first_height, len(blocks), {first_height + place: blocks[place] for place in places})

    def served(self, store: BlockStore) -> Sequence[BlockRecord]:
        """The blocks, if ``store`` has the chain. Blocks that it no longer has are left out."""
        return as_stored(ServedBlocks.known(store, self.first_height, self.count, self.differing))


def _structure(kind: type, without: frozenset[str] = frozenset(), **instead: Any) -> Any:
    """A structure with the fields of a dataclass and their types, but for those that are written ``instead``."""
    types = get_type_hints(kind) | instead
    names = [each.name for each in fields(kind) if each.name not in without]
    return msgspec.defstruct(
        f"Saved{kind.__name__}", [(name, types[name]) for name in names], frozen=True, forbid_unknown_fields=True
    )


ELSEWHERE: Final = frozenset(
    {
        "genesis",  # in its own file, as is the next; a checkpoint's is rebuilt from scenario and seed
        "store",
        "kept_ledger",  # computed again
        "timings",  # only a calibration has them, which no other process reads
    }
)
"""Fields of a record that are not written."""
BESIDES: Final[Mapping[str, Any]] = {"finalizations": b"", "proposals": {}}
"""In place of the fields that a live run has in separate files until its end."""

if TYPE_CHECKING:  # they have the same fields, and no type checker knows a structure that is made here
    SavedRecord = RunRecord
    SavedValidator = ValidatorRecord
else:
    SavedValidator = _structure(ValidatorRecord, blocks=SavedBlocks)
    SavedRecord = _structure(
        RunRecord,
        ELSEWHERE,
        scheme=Literal[tuple(SCHEMES)],
        validators=list[SavedValidator],
        lost=list[SavedValidator],
        samples=list[Sample],
        finalizations=bytes,
    )


def save_validator(found: ValidatorRecord, chain: Sequence[BlockRecord]) -> SavedValidator:
    """All that was collected from a validator, as data. ``chain`` begins at height 1."""
    blocks = SavedBlocks.of(found.blocks, found.first_height, chain)
    return SavedValidator(**{each.name: getattr(found, each.name) for each in fields(found)} | {"blocks": blocks})


def again(saved: SavedValidator, store: BlockStore) -> ValidatorRecord:
    """The inverse of :func:`save_validator`; ``store`` has the chain."""
    values = {each.name: getattr(saved, each.name) for each in fields(ValidatorRecord)}
    return ValidatorRecord(**values | {"blocks": values["blocks"].served(store)})


def save(record: RunRecord, chain: Sequence[BlockRecord] | None = None, besides: Mapping[str, Any] = {}) -> SavedRecord:
    """The record as it is now, as data. It shares the record's lists: do not change it.

    ``chain`` has the blocks that are kept, by default those of the record's store. ``besides`` are fields that are not
    the record's (:data:`BESIDES`).
    """
    kept = ServedBlocks.all_of(record.store) if chain is None else chain
    values = {each.name: getattr(record, each.name) for each in fields(record) if each.name not in ELSEWHERE}
    for name in ("validators", "lost"):
        values[name] = [save_validator(each, kept) for each in values[name]]
    values |= {"scheme": record.scheme.name, "samples": list(record.samples), **besides}
    if "finalizations" not in besides:
        values["finalizations"] = record.finalizations.packed
    return SavedRecord(**values)


def enter(saved: SavedRecord, record: RunRecord) -> None:
    """Fill a record, whose store already has the run's blocks. The inverse of :func:`save`."""
    for each in fields(record):
        if each.name not in ELSEWHERE:
            setattr(record, each.name, getattr(saved, each.name))
    written: Any = saved  # each of these is written as another type
    record.validators = [again(each, record.store) for each in written.validators]
    record.lost = [again(each, record.store) for each in written.lost]
    record.samples = deque(written.samples, maxlen=MAX_SAMPLES)
    record.finalizations = Finalizations.unpacked(written.finalizations)
    record.scheme = SCHEMES[written.scheme]()


# --- encoding -------------------------------------------------------------------------------------------------------


def encode(value: object) -> bytes:
    """Encode a record, or a part of it, as JSON."""
    try:
        return msgspec.json.encode(value, enc_hook=_plain)
    except UnicodeEncodeError:  # half a surrogate pair, from a file name or a validator's answer
        plain = msgspec.to_builtins(value, str_keys=True, enc_hook=_plain)
        return json.dumps(plain, ensure_ascii=False).encode(errors="replace")


def decode(body: bytes, kind: type[T]) -> T:
    """The inverse of :func:`encode`. Raises :class:`BadInput`, with one line, if ``body`` is not of this kind."""
    try:
        return msgspec.json.decode(body, type=kind, dec_hook=_from_json)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadInput(printable(str(error))) from None


def _plain(value: Any) -> Any:
    """Encode types that :mod:`msgspec` does not know: models of a scenario, or of a load."""
    if not isinstance(value, BaseModel):
        raise NotImplementedError(f"a record has no place for a {type(value).__name__}")
    return value.model_dump(mode="json", exclude_unset=isinstance(value, Scenario))


def _from_json(kind: type, value: Any) -> Any:
    text = msgspec.json.encode(value)
    try:
        return _model(kind).model_validate_json(text)
    except ValidationError as error:
        (first, *_) = error.errors()
        where = ".".join(map(str, first["loc"]))
        what = first["msg"].removeprefix("Value error, ")
        raise ValueError(f"{where}: {what}" if where else what) from None


def _model(kind: type) -> type[BaseModel]:
    if not issubclass(kind, BaseModel):
        raise NotImplementedError(f"a record has no place for a {kind.__name__}")
    return kind


# --- files ----------------------------------------------------------------------------------------------------------


def sealed(name: str, number: int, body: bytes) -> bytes:
    """The content of a file: a line with the name and number of its format, a line with a checksum, and ``body``."""
    return b"stampede %b %d\n%b\n%b" % (name.encode(), number, blake3(body).hexdigest().encode(), body)


def unsealed(name: str, number: int, content: bytes) -> bytes:
    """The body of a file that :func:`sealed` made.

    Raises :class:`Damaged`, or :class:`BadInput` if the file is of another number.
    """
    first, _, rest = content.partition(b"\n")
    start, _, found = first.rpartition(b" ")
    if start != b"stampede " + name.encode() or not found.isdigit():
        raise Damaged(f"is no {name} of a run")
    if found != b"%d" % number:
        raise BadInput(f"is of format {found[:SHOWN_DIGITS].decode()}; expected format {number}")
    digest, _, body = rest.partition(b"\n")
    if blake3(body).hexdigest().encode() != digest:
        raise Damaged("is damaged: its checksum does not hold")
    return body


def write_record(record: RunRecord, chain: Sequence[BlockRecord], path: Path) -> None:
    """Write a record atomically. ``chain`` are the blocks in the archive next to it. Raises :class:`OSError`."""
    body = zlib.compress(encode(save(record, chain)), zlib.Z_BEST_SPEED)
    write_atomically(path, sealed("record", RECORD_FORMAT, body))


def read_record(folder: Path) -> RunRecord:
    """The record in a run's folder, with genesis and blocks. Executes no code.

    Raises :class:`BadInput`, with one line, if a file is missing, damaged or of another version.
    """
    path = folder / RECORD_FILE
    try:
        content, store = path.read_bytes(), FileBlocks.archived(folder / BLOCKS_FILE)
    except OSError as error:
        raise BadInput(f"{error.filename}: cannot be read: {error.strerror}") from None
    genesis = read_genesis(folder / GENESIS_FILE)
    try:
        saved = _record_in(_inflated(unsealed("record", RECORD_FORMAT, content)))
        record = RunRecord(saved.scenario, saved.backend, saved.seed, saved.commit, genesis, store=store)
        enter(saved, record)
    except (BadInput, ValueError) as error:
        raise BadInput(f"{path}: {error}") from None
    return record


def _record_in(text: bytes) -> SavedRecord:
    try:
        return decode(text, SavedRecord)
    except BadInput as error:
        raise BadInput(f"does not fit format {RECORD_FORMAT}: {error}; expected a record of this code") from None


def _inflated(body: bytes) -> bytes:
    reader = zlib.decompressobj()
    try:
        text = reader.decompress(body, MAX_TEXT_BYTES)
    except zlib.error as error:
        raise Damaged(f"is damaged: {error}") from None
    if not reader.eof:
        raise Damaged(f"is cut off, or has more than {MAX_TEXT_BYTES:,} bytes of text")
    return text
