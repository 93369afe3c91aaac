"""A validator of another party, written from ``docs/`` alone: it imports nothing of the project.

It keeps to ``docs/peer-protocol.md`` (connections, handshake, messages), ``docs/consensus.md`` (Simplex),
``docs/state.md`` (the state root) and ``docs/protocol.md`` (headers, genesis). A program that speaks the stream of
``docs/executor.md`` executes its blocks. It follows the chain, votes, proposes empty blocks, and serves ``/status`` and
``/blocks``.

It has no disk, so it must not be started twice in a run, and it knows neither committees nor actors of the genesis
other than scripts. Its
timeouts do not adapt.

``python foreign_peer.py --folder RUN --index 3 --seed HEX --port 7000 --executor 'stampede executor' [--fault NAME]``
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import random
import shlex
import subprocess
import time
import urllib.request
from collections import defaultdict
from collections.abc import Callable, Iterable
from itertools import count
from pathlib import Path
from typing import Any

import msgpack
from blake3 import blake3
from Crypto.Hash import keccak
from nacl.exceptions import BadSignatureError
from nacl.signing import SigningKey, VerifyKey

NOTARIZE, NULLIFY, FINALIZE = 1, 2, 3
LEADER_S, ADVANCE_S, REBROADCAST_S, BLOCK_INTERVAL_S, RETRY_S = 2.0, 3.0, 0.5, 0.25, 0.25
MAX_FRAME, MAX_HANDSHAKE, MAX_BLOCK = 16_777_216, 1_024, 4 << 20
NO_PEER = -1
WRONG_ROOT, EQUIVOCATE = "wrong-root", "equivocate"
FAULTY_FROM = 5
"""The height from which roots are wrong, and the view from which votes contradict each other."""

NOT_IN_THE_GENESIS = {
    "WEIGHT_PARTY": "actor",
    "MEDIAN_SMOOTHING_MILLI": 1000,
    "WEIGHT_CLIP_MIN_MILLI": 1000,
    "WEIGHT_CLIP_MAX_MILLI": 2000,
    "MAX_WATCHERS_PER_KEY": 64,
}
"""Parameters that the genesis block covers only if they have other values."""

pack: Callable[[Any], bytes] = msgpack.packb


def unpack(data: bytes) -> Any:
    """A value from its canonical encoding. Raises :class:`ValueError`."""
    try:
        value = msgpack.unpackb(data, raw=False, strict_map_key=False)
    except (msgpack.UnpackException, ValueError) as error:
        raise ValueError(f"no MessagePack: {error}") from None
    if pack(value) != data:
        raise ValueError("not in its shortest form")
    return value


def uint(value: int) -> bytes:
    return value.to_bytes((value.bit_length() + 7) // 8, "big")


def tagged(tag: str, data: bytes) -> bytes:
    return blake3(bytes([len(tag)]) + tag.encode() + data).digest()


def merkle_root(name: str, contents: list[bytes]) -> bytes:
    level = [tagged(f"{name}/leaf", content) for content in contents]
    while len(level) > 1:
        pairs = [tagged(f"{name}/node", level[i] + level[i + 1]) for i in range(0, len(level) - 1, 2)]
        level = pairs + level[len(pairs) * 2 :]
    return tagged(f"{name}/root", len(contents).to_bytes(8, "big") + b"".join(level))


def address_of(public_key: bytes) -> bytes:
    return keccak.new(digest_bits=256, data=public_key).digest()[-20:]


def receipts_root(encoded: bytes) -> bytes:
    height, proposer, *lists, gc_cycles, p50_tip = [*unpack(encoded)][:9]
    callbacks = [*unpack(encoded)][9:]
    lists = [*lists, *callbacks]
    summary = [height, proposer, gc_cycles, p50_tip, *map(len, lists)]
    return merkle_root("receipts", [pack(summary), *(pack(each) for receipts in lists for each in receipts)])


# --- the state tree ---------------------------------------------------------------------------------------------------

NONE = 2**64 - 1


def keyed(kind: str, data: bytes) -> bytes:
    return blake3(data, key=f"stampede/state/2/{kind}".encode().ljust(32, b"\0")).digest()


def tree(kind: str, row: list[bytes]) -> bytes:
    while len(row) > 1:
        row = [keyed(kind, row[i] + row[i + 1]) for i in range(0, len(row), 2)]
    return row[0]


Entry = tuple[int, int, bytes, bytes, bytes]


class State:
    """The state after one block: the log of entries, and the positions of the live keys."""

    def __init__(self, entries: list[Entry], positions: dict[bytes, int]) -> None:
        self.entries, self.positions = entries, positions

    def apply(self, height: int, batch: dict[bytes, bytes | None], slack: int = 4096) -> State:
        entries, positions = list(self.entries), dict(self.positions)
        before = _ring(positions)
        values = {key: entries[position][4] for key, position in positions.items()}
        changed = {key: value for key, value in batch.items() if value != values.get(key)}
        for key, value in changed.items():
            if value is None:
                del positions[key]
            else:
                positions.setdefault(key, NONE)
        after = _ring(positions)

        def append(key: bytes) -> None:
            value = changed[key] if key in changed else values[key]
            assert value is not None
            entries.append((height, positions[key], after[key], key, value))
            positions[key] = len(entries) - 1

        touched = [key for key in positions if key in changed or after[key] != before.get(key)]
        for key in sorted(touched, key=lambda key: keyed("key", key)):
            append(key)
        for key in sorted(positions, key=positions.__getitem__)[: 2 * len(touched)]:
            if len(entries) - positions[key] <= len(positions) * 5 // 2 + slack:
                break
            append(key)
        return State(entries, positions)

    def root(self) -> bytes:
        active = set(self.positions.values())
        twigs = [self._twig(active, first) for first in range(0, len(self.entries), 2048)]
        width = 1
        while width < len(twigs):
            width *= 2
        upper = tree("upper-node", twigs + [bytes(32)] * (width - len(twigs)))
        return keyed("root", len(self.entries).to_bytes(8, "big") + len(active).to_bytes(8, "big") + upper)

    def _twig(self, active: set[int], first: int) -> bytes:
        leaves = [keyed("entry", _encode_entry(*entry)) for entry in self.entries[first : first + 2048]]
        bits = bytearray(256)
        for i in range(len(leaves)):
            if first + i in active:
                bits[i // 8] |= 1 << (i % 8)
        return keyed("twig", tree("entry-node", leaves + [bytes(32)] * (2048 - len(leaves))) + bytes(bits))


def _ring(positions: dict[bytes, int]) -> dict[bytes, bytes]:
    order = sorted(positions, key=lambda key: keyed("key", key))
    return {key: keyed("key", following) for key, following in zip(order, order[1:] + order[:1], strict=True)}


def _encode_entry(height: int, previous: int, next_hash: bytes, key: bytes, value: bytes) -> bytes:
    numbers = height.to_bytes(8, "big") + previous.to_bytes(8, "big") + next_hash
    return numbers + len(key).to_bytes(2, "big") + len(value).to_bytes(4, "big") + key + value


# --- the genesis ------------------------------------------------------------------------------------------------------


class Genesis:
    """The chain's beginning, from the page ``/genesis`` of a validator and the names of the governed parameters."""

    def __init__(self, page: dict[str, Any], governed: list[str]) -> None:
        actors = {bytes.fromhex(each[2:]): actor for each, actor in page["actors"].items()}
        assert "epochs" not in page and "runners" not in page, "this peer knows neither committees nor runners"
        assert all(each["code"] == "builtin:script" and not each["gba"] for each in actors.values()), "only scripts"
        self.chain_id: str = page["chain_id"]
        self.namespace = self.chain_id.encode()
        self.keys = [bytes.fromhex(key) for key in page["validators"]]
        self.policy, self.parameters = page["policy"], page["params"]
        self.deployers = [bytes.fromhex(each[2:]) for each in page["system_deployers"]]
        balances = {bytes.fromhex(each[2:]): account["balance"] for each, account in page["accounts"].items()}
        fee = uint(self.parameters["INITIAL_BASEFEE"])
        held_by_actors = {each: actor["balance"] for each, actor in actors.items()}
        self.entries: dict[bytes, bytes] = {
            b"a" + each: pack([uint(held), 0]) for each, held in (balances | held_by_actors).items()
        }
        deployers = {each: bytes.fromhex(actor["deployer"][2:]) for each, actor in actors.items()}
        for each, deployer in deployers.items():
            self.entries[b"c" + each] = pack(["builtin:script", deployer, 0, 0, 0, None])
        for name in governed:
            key = b"s" + bytes(19) + b"\x09" + f"system:cip1:{name.lower()}".encode()
            self.entries[key] = parameter_text(self.parameters[name]).encode()
        minted = uint(sum(balances.values()) + sum(held_by_actors.values()))
        self.entries[b"g"] = pack([b"", b"", b"", fee, fee, fee, b"", b"", b"", minted, b"", b"", b"", b""])
        self.state = State([], {}).apply(0, dict(self.entries))
        content = [
            self.chain_id,
            self.policy,
            self.keys,
            [[n, parameter_text(v)] for n, v in sorted(self.parameters.items()) if NOT_IN_THE_GENESIS.get(n, ...) != v],
            [[each, uint(held)] for each, held in sorted(balances.items())],
            [[each, "builtin:script", d, uint(held_by_actors[each]), None] for each, d in sorted(deployers.items())],
            sorted(self.deployers),
        ]
        receipts = merkle_root("receipts", [pack([0, bytes(20), 0, b"", 0, 0, 0, 0, 0])])
        roots = [tagged("genesis", pack(content)), receipts, self.state.root()]
        self.header = [self.chain_id, 0, 0, bytes(32), 0, *roots, fee, fee, fee, 0, 0, 0, 0]
        self.digest = tagged("header", pack(self.header))


def parameter_text(value: Any) -> str:
    return json.dumps(value, separators=(",", ":")) if isinstance(value, list) else str(value)


# --- blocks -----------------------------------------------------------------------------------------------------------


class Block:
    """A block with what it takes from its header."""

    def __init__(self, body: bytes) -> None:
        """Raises :class:`ValueError` for a body that is no block."""
        if len(body) > MAX_BLOCK:
            raise ValueError("a block of more than 4 MiB")
        self.body = body
        self.header, self.transactions = unpack(body)
        self.digest = tagged("header", pack(self.header))
        self.chain_id, self.height, self.view, self.parent, self.proposer, transactions_root = self.header[:6]
        self.hashes = [tagged("transaction", each) for each in self.transactions]
        if transactions_root != merkle_root("transactions", self.hashes):
            raise ValueError("another transactions_root")


class Executed:
    """What the execution of a block gave."""

    def __init__(self, number: int, height: int, result: list[Any], state: State) -> None:
        self.number, self.receipts, self.state = number, result[7], state
        self.fees, self.sums = result[0:3], result[3:7]
        self.root = state.root()
        self.height = height


class Executor:
    """The program that executes blocks, and the states after the blocks that it executed."""

    def __init__(self, command: str, genesis: Genesis) -> None:
        self._child = subprocess.Popen(shlex.split(command), stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self._genesis = genesis
        self._numbers = count(1)
        chain = [genesis.chain_id, genesis.policy, json.dumps(genesis.parameters), genesis.deployers, None]
        self._ask("open", 1, chain, 0, genesis.state.root())
        self._ask("load", [[key, value] for key, value in genesis.entries.items()], True)
        self.done = {genesis.digest: Executed(0, 0, [b""] * 11, genesis.state)}

    def apply(self, block: Block) -> str:
        """Execute a block whose parent is executed. Returns what is wrong with it; empty if it is valid."""
        parent = self.done[block.parent]
        number, height = next(self._numbers), block.height
        if height != parent.height + 1 or block.chain_id != self._genesis.chain_id:
            return "it does not follow its parent"
        given = []
        for wire, digest in zip(block.transactions, block.hashes, strict=True):
            key, signature, body = unpack(wire)
            VerifyKey(key).verify(b"stampede/transaction/v1" + body, signature)
            given.append([digest, address_of(key), wire])
        name, *rest = self._ask("apply", parent.number, number, height, self._account(block.proposer), given)
        if name != "applied":
            return f"{name}: {rest}"
        executed = self._keep(number, height, rest[0], parent)
        if self.outcome(executed) != block.header[6:]:
            return "execution gives another header"
        self.done[block.digest] = executed
        return ""

    def build(self, parent_digest: bytes, view: int, proposer: int) -> Block:
        """An empty block."""
        parent, number = self.done[parent_digest], next(self._numbers)
        height = parent.height + 1
        _, _, _, result = self._ask(
            "build", parent.number, number, height, self._account(proposer), 0, MAX_BLOCK // 2, []
        )
        executed = self._keep(number, height, result, parent)
        transactions_root = merkle_root("transactions", [])
        place = [self._genesis.chain_id, height, view, parent_digest, proposer, transactions_root]
        block = Block(pack([[*place, *self.outcome(executed)], []]))
        self.done[block.digest] = executed
        return block

    def commit(self, digest: bytes) -> None:
        self._ask("commit", self.done[digest].number)

    @staticmethod
    def outcome(executed: Executed) -> list[Any]:
        """The fields of a header that execution gives."""
        return [receipts_root(executed.receipts), executed.root, *executed.fees, *executed.sums]

    def _keep(self, number: int, height: int, result: list[Any], parent: Executed) -> Executed:
        return Executed(number, height, result, parent.state.apply(height, dict(result[8])))

    def _account(self, proposer: int) -> bytes:
        return address_of(self._genesis.keys[proposer])

    def _ask(self, *request: Any) -> list[Any]:
        content, pipes = pack(list(request)), self._child
        assert pipes.stdin is not None and pipes.stdout is not None
        pipes.stdin.write(len(content).to_bytes(4, "big") + content)
        pipes.stdin.flush()
        answer: list[Any] = msgpack.unpackb(pipes.stdout.read(int.from_bytes(pipes.stdout.read(4), "big")))
        if answer[0] == "failed":
            raise RuntimeError(answer[1])
        return answer


# --- votes and certificates -------------------------------------------------------------------------------------------

Vote = list[Any]
"""[1, kind, view, parent view, digest, signer, signature]"""
Certificate = list[Any]
"""[3, kind, view, parent view, digest, signers, signatures]"""


class Keys:
    """The validators' keys and our own."""

    def __init__(self, genesis: Genesis, index: int, seed: bytes) -> None:
        self.genesis, self.index, self.count = genesis, index, len(genesis.keys)
        self.own = SigningKey(seed)
        self.quorum = self.count - (self.count - 1) // 3
        assert bytes(self.own.verify_key) == genesis.keys[index], "the genesis has another key"

    def leader(self, view: int) -> int:
        return view % self.count

    def vote(self, kind: int, view: int, parent_view: int = 0, digest: bytes = b"") -> Vote:
        signature = self.own.sign(self._signed(kind, view, parent_view, digest)).signature
        return [1, kind, view, parent_view, digest, self.index, signature]

    def holds(self, vote: Vote) -> bool:
        """Whether a vote's form and signature are right."""
        _, kind, view, parent_view, digest, signer, signature = vote
        return self._is_formed(kind, view, parent_view, digest) and self.verify(
            signer, self._signed(kind, view, parent_view, digest), signature
        )

    def certificate(self, votes: Iterable[Vote]) -> Certificate:
        ordered = sorted(votes, key=lambda vote: vote[5])
        bits = sum(1 << vote[5] for vote in ordered)
        signers = bits.to_bytes((bits.bit_length() + 7) // 8, "little")
        return [3, *ordered[0][1:5], signers, b"".join(vote[6] for vote in ordered)]

    def certifies(self, certificate: Certificate) -> bool:
        _, kind, view, parent_view, digest, bitmap, signatures = certificate
        bits = int.from_bytes(bitmap, "little")
        signers = [index for index in range(bits.bit_length()) if bits >> index & 1]
        if not self._is_formed(kind, view, parent_view, digest) or not bitmap or not bitmap[-1]:
            return False
        if not self.quorum <= len(signers) == len(signatures) / 64 or signers[-1] >= self.count:
            return False
        message = self._signed(kind, view, parent_view, digest)
        return all(self.verify(s, message, signatures[64 * n : 64 * n + 64]) for n, s in enumerate(signers))

    def verify(self, signer: int, message: bytes, signature: bytes) -> bool:
        try:
            VerifyKey(self.genesis.keys[signer]).verify(message, signature)
        except (BadSignatureError, ValueError, IndexError):
            return False
        return True

    @staticmethod
    def _is_formed(kind: int, view: int, parent_view: int, digest: bytes) -> bool:
        if kind == NULLIFY:
            return view >= 1 and parent_view == 0 and digest == b""
        return kind in (NOTARIZE, FINALIZE) and 0 <= parent_view < view and len(digest) == 32

    def _signed(self, kind: int, view: int, parent_view: int, digest: bytes) -> bytes:
        chain = self.genesis.namespace
        return b"".join(
            (
                b"stampede/consensus/vote/1",
                bytes([len(chain)]),
                chain,
                bytes([kind]),
                view.to_bytes(8, "big"),
                parent_view.to_bytes(8, "big"),
                digest,
            )
        )


# --- consensus --------------------------------------------------------------------------------------------------------

Send = Callable[[int | None, list[Any]], None]
"""Sends a message to one peer, or to all."""


class Validator:
    """One validator under Simplex, without sockets: messages and ticks in, messages out."""

    def __init__(self, keys: Keys, executor: Executor, send: Send, fault: str | None) -> None:
        self.keys, self.executor, self._send, self._fault = keys, executor, send, fault
        genesis = keys.genesis
        self.view, self.final_view, self.entered_s, self.repeated_s = 1, 0, time.monotonic(), time.monotonic()
        self.final = genesis.digest
        self.chain: list[tuple[Block, bytes]] = []
        """The final blocks from height 1 on, each with its finalization or nothing."""
        self.blocks: dict[bytes, Block] = {}
        self.certificates: dict[tuple[int, int], Certificate] = {}
        """By kind and view."""
        self._votes: dict[tuple[int, int], dict[int, Vote]] = defaultdict(dict)
        self._own: dict[tuple[int, int], Vote] = {}
        self._proposals: dict[int, list[Any]] = {}
        self._invalid: set[bytes] = set()
        self._target: Certificate | None = None
        self._asked_s = 0.0
        self._peers = [(keys.index + n) % keys.count for n in range(1, keys.count)]

    # --- input --------------------------------------------------------------------------------------------------------

    def on_payload(self, sender: int, payload: bytes) -> None:
        (message,) = unpack(payload)
        tag, *fields = message
        handlers: dict[int, Callable[..., None]] = {
            1: self._on_consensus,
            3: self._on_block_request,
            4: self._on_block,
            5: self._on_final_request,
            6: self._on_final_blocks,
            11: self._on_view_request,
        }
        if tag in handlers:  # transactions, snapshots and what is pruned do not matter to this peer
            handlers[tag](sender, *fields)
        self._proceed()

    def tick(self) -> None:
        """Look at the timers of the view; called often."""
        now_s, me, waited_s = time.monotonic(), self.keys.index, time.monotonic() - self.entered_s
        is_ours = self.keys.leader(self.view) == me
        if is_ours and waited_s >= BLOCK_INTERVAL_S:
            self._propose()
        no_proposal = waited_s >= LEADER_S and self.view not in self._proposals and not is_ours
        if no_proposal or waited_s >= ADVANCE_S:
            self._nullify()
        if now_s - self.repeated_s >= REBROADCAST_S:
            self.repeated_s = now_s
            self._repeat()
        if now_s - self._asked_s >= RETRY_S:
            self._proceed()

    # --- messages of consensus ----------------------------------------------------------------------------------------

    def _on_consensus(self, sender: int, payload: bytes) -> None:
        message = unpack(payload)
        match message[0]:
            case 1:
                self._on_vote(sender, message)
            case 2:
                self._on_proposal(sender, message)
            case 3:
                if not self._has(message[1], message[2]) and self.keys.certifies(message):
                    self._learn(message)
            case 4:
                for view in message[1]:
                    self._give_certificates(sender, view)
                self._give_certificates(sender, self.view - 1)

    def _on_vote(self, sender: int, vote: Vote) -> None:
        _, kind, view, _, _, signer, _ = vote
        if signer != sender or view > self.view + 16:
            return
        if kind != FINALIZE and view <= self.view - 2:
            for each in (view, self.view - 1, self.final_view):
                self._give_certificates(sender, each)
        elif view > self.final_view and signer not in self._votes[kind, view] and self.keys.holds(vote):
            self._count(vote)

    def _on_proposal(self, sender: int, proposal: list[Any]) -> None:
        _, view, parent_view, _, digest, body, vote = proposal
        if sender != self.keys.leader(view) or not self.view <= view <= self.view + 4 or view in self._proposals:
            return
        if vote[1:6] != [NOTARIZE, view, parent_view, digest, sender] or not self.keys.holds(vote):
            return
        block = Block(body)
        if block.digest == digest:
            self.blocks[digest] = block
            self._proposals[view] = proposal
            self._count(vote)

    def _count(self, vote: Vote) -> None:
        """Count a vote whose signature holds; a quorum of equal ones is a certificate."""
        kind, view, parent_view, digest = vote[1:5]
        votes = self._votes[kind, view]
        votes.setdefault(vote[5], vote)
        equal = [each for each in votes.values() if each[3:5] == [parent_view, digest]]
        if len(equal) >= self.keys.quorum and not self._has(kind, view):
            certificate = self.keys.certificate(equal)
            self._learn(certificate)
            if self.keys.index in (self.keys.leader(view + n) for n in (1, 2, 3)):
                self._consensus(None, certificate)

    def _has(self, kind: int, view: int) -> bool:
        return view <= self.final_view or (kind, view) in self.certificates

    def _learn(self, certificate: Certificate) -> None:
        _, kind, view, parent_view, digest, *_ = certificate
        self.certificates[kind, view] = certificate
        if kind == FINALIZE and (self._target is None or self._target[2] < view):
            self._target = certificate
        gave_up = (NULLIFY, view) in self._own or (NULLIFY, view) in self.certificates
        if kind == NOTARIZE and not gave_up and (FINALIZE, view) not in self._own and view > self.final_view:
            self._cast(FINALIZE, view, parent_view, digest)
        if view >= self.view:
            self.view, self.entered_s, self.repeated_s = view + 1, time.monotonic(), time.monotonic()

    def _cast(self, kind: int, view: int, parent_view: int = 0, digest: bytes = b"") -> Vote:
        vote = self._own[kind, view] = self.keys.vote(kind, view, parent_view, digest)
        self._consensus(None, vote)
        if self._fault == EQUIVOCATE and kind == NOTARIZE and view >= FAULTY_FROM:
            self._consensus(None, self.keys.vote(kind, view, parent_view, tagged("another", digest)))
        self._count(vote)
        return vote

    def _nullify(self) -> None:
        if not {(NULLIFY, self.view), (FINALIZE, self.view)} & self._own.keys():
            self._cast(NULLIFY, self.view)

    def _repeat(self) -> None:
        """Send again what may be lost: our votes, and our proposal to those of whom no vote came."""
        view, me = self.view, self.keys.index
        votes = [vote for (_, each), vote in self._own.items() if each == view]
        if (late := self._own.get((FINALIZE, view - 1))) is not None:
            votes.append(late)
        for vote in votes:
            self._consensus(None, vote)
        proposal = self._proposals.get(view)
        if self.keys.leader(view) == me and proposal is not None and (NULLIFY, view) not in self._own:
            heard = {signer for kind in (NOTARIZE, NULLIFY) for signer in self._votes[kind, view]}
            for peer in set(self._peers) - heard:
                self._consensus(peer, proposal)
        if not votes:
            for peer in random.sample(self._peers, min(3, len(self._peers))):
                self._consensus(peer, [4, [view]])

    # --- blocks -------------------------------------------------------------------------------------------------------

    def _certified(self, view: int) -> bytes | None:
        """The digest of the block of a view that may be built upon."""
        if view == self.final_view:
            return self.final
        found = self.certificates.get((NOTARIZE, view)) or self.certificates.get((FINALIZE, view))
        return None if found is None else found[4]

    def _missing(self, above: int, below: int) -> list[int]:
        """The views between two views whose nullifications are missing."""
        return [view for view in range(above + 1, below) if (NULLIFY, view) not in self.certificates]

    def _proceed(self) -> None:
        """Do what became possible: make blocks final, vote for the proposal of the view."""
        self._finalize()
        proposal, view = self._proposals.get(self.view), self.view
        if proposal is None or self.keys.leader(view) == self.keys.index:
            return
        if {(NOTARIZE, view), (NULLIFY, view)} & self._own.keys():
            return
        _, _, parent_view, parent_digest, digest, _, _ = proposal
        parent = self._certified(parent_view)
        if parent_view < self.final_view or (parent is not None and parent != parent_digest):
            self._nullify()
            return
        missing = ([] if parent is not None else [parent_view]) + self._missing(parent_view, view)
        if missing:
            self._ask(self.keys.leader(view), [1, pack([4, missing[:64]])])
        elif self._execute(digest, self.keys.leader(view)):
            block = self.blocks[digest]
            if (block.view, block.proposer, block.parent) == (view, self.keys.leader(view), parent_digest):
                self._cast(NOTARIZE, view, parent_view, digest)
            else:
                self._nullify()
        elif digest in self._invalid:
            self._nullify()

    def _propose(self) -> None:
        """Propose an empty block, once."""
        view, me = self.view, self.keys.index
        if view in self._proposals or (NULLIFY, view) in self._own:
            return
        parent_view = next(each for each in range(view - 1, -1, -1) if self._certified(each) is not None)
        parent, missing = self._certified(parent_view), self._missing(parent_view, view)
        assert parent is not None
        if missing:
            self._ask(self._next_peer(), [1, pack([4, missing[:64]])])
        elif self._execute(parent, NO_PEER):
            block = self.executor.build(parent, view, me)
            self.blocks[block.digest] = block
            vote = self.keys.vote(NOTARIZE, view, parent_view, block.digest)
            self._own[NOTARIZE, view] = vote
            self._proposals[view] = [2, view, parent_view, parent, block.digest, block.body, vote]
            self._consensus(None, self._proposals[view])
            self._count(vote)

    def _execute(self, digest: bytes, holder: int) -> bool:
        """Execute a block and those below it that are not; ask ``holder`` for the first that is missing."""
        line: list[Block] = []
        while digest not in self.executor.done:
            block = self.blocks.get(digest)
            if block is None:
                self._ask(self._next_peer() if holder == NO_PEER else holder, [3, digest])
                return False
            line.append(block)
            digest = block.parent
        for block in reversed(line):
            problem = "" if block.parent not in self._invalid else "its parent is invalid"
            if problem := problem or self.executor.apply(block):
                print(f"block {block.height} of view {block.view} is invalid: {problem}", flush=True)
                self._invalid.add(block.digest)
                return False
        return True

    def _finalize(self) -> None:
        """Make the target's line final, or ask for what is missing of it."""
        target = self._target
        if target is None:
            return
        line, digest = [], target[4]
        while digest != self.final:
            block = self.blocks.get(digest)
            if block is None:
                self._ask(self._next_peer(), [5, len(self.chain) + 1, 64])
                return
            line.append(block)
            digest = block.parent
        if not self._execute(target[4], NO_PEER):
            return
        for block in reversed(line):
            own = self.certificates.get((FINALIZE, block.view))
            self.chain.append((block, b"" if own is None or own[4] != block.digest else pack(own)))
            self.executor.commit(block.digest)
            self.final, self.final_view = block.digest, block.view
        self._target = None
        self._forget()

    def _forget(self) -> None:
        """Drop what is far behind the final view."""
        floor = self.final_view - 64
        for table in (self.certificates, self._votes, self._own):
            for key in [key for key in table if key[1] < floor]:
                del table[key]
        self._proposals = {view: each for view, each in self._proposals.items() if view >= self.view}

    # --- what peers ask and answer ------------------------------------------------------------------------------------

    def _give_certificates(self, peer: int, view: int) -> None:
        final = self.certificates.get((FINALIZE, view))
        held = [final] if final else [self.certificates.get((kind, view)) for kind in (NOTARIZE, NULLIFY)]
        for certificate in held:
            if certificate is not None:
                self._consensus(peer, certificate)

    def _on_block_request(self, sender: int, digest: bytes) -> None:
        block = self.blocks.get(digest)
        if block is not None:
            self._send(sender, [4, block.body])
        else:
            self._give_certificates(sender, self.final_view)

    def _on_block(self, sender: int, body: bytes) -> None:
        block = Block(body)
        self.blocks[block.digest] = block

    def _on_final_request(self, sender: int, first: int, most: int) -> None:
        bodies: list[bytes] = []
        place = max(first, 1) - 1
        for block, _ in self.chain[place : place + min(most, 64)]:
            if bodies and sum(map(len, bodies)) + len(block.body) > MAX_BLOCK:
                break
            bodies.append(block.body)
        links = []
        for block, certificate in self.chain[place + len(bodies) - 1 :]:
            if block is not self.chain[place + len(bodies) - 1][0]:
                links.append(block.header)
            if certificate and bodies:
                self._send(sender, [6, bodies, links, certificate])
                return

    def _on_final_blocks(self, sender: int, bodies: list[bytes], links: list[Any], certificate: bytes) -> None:
        blocks = [Block(body) for body in bodies]
        headers = [block.header for block in blocks] + links
        digests = [tagged("header", pack(header)) for header in headers]
        proof = unpack(certificate)
        is_linked = all(header[3] == parent for header, parent in zip(headers[1:], digests, strict=False))
        if is_linked and proof[1] == FINALIZE and proof[4] == digests[-1] and self.keys.certifies(proof):
            self.blocks.update({block.digest: block for block in blocks})

    def _on_view_request(self, sender: int, nonce: bytes) -> None:
        opening = [self.certificates.get((kind, self.view - 1)) for kind in (FINALIZE, NOTARIZE, NULLIFY)]
        found = next(filter(None, opening), None)
        if found is not None or self.view == 1:
            self._send(sender, [12, nonce[:32], b"" if found is None else pack(found)])

    def _next_peer(self) -> int:
        self._peers.append(self._peers.pop(0))
        return self._peers[-1]

    def _ask(self, peer: int, message: list[Any]) -> None:
        """Ask a peer, unless an answer may be under way."""
        if time.monotonic() - self._asked_s >= RETRY_S:
            self._asked_s = time.monotonic()
            self._send(peer, message)

    def _consensus(self, peer: int | None, message: list[Any]) -> None:
        self._send(peer, [1, pack(message)])


# --- connections ------------------------------------------------------------------------------------------------------


async def pause(seconds: float) -> None:
    """Let the others work for a while."""
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(asyncio.Event().wait(), seconds)


async def read_frame(reader: asyncio.StreamReader, most: int) -> bytes:
    length = int.from_bytes(await reader.readexactly(4), "big")
    if length > most:
        raise ValueError(f"a frame of {length} bytes")
    return await reader.readexactly(length)


def framed(content: bytes) -> bytes:
    return len(content).to_bytes(4, "big") + content


class Connections:
    """The connections to and from all other validators."""

    def __init__(self, keys: Keys) -> None:
        self._keys = keys
        self.on_payload: Callable[[int, bytes], None] = lambda peer, payload: None
        self.addresses: dict[int, tuple[str, int]] = {}
        self._queues: dict[int, asyncio.Queue[bytes]] = {
            peer: asyncio.Queue() for peer in range(keys.count) if peer != keys.index
        }

    def send(self, peer: int | None, message: list[Any]) -> None:
        frame = framed(pack([message]))
        for index in self._queues if peer is None else [peer]:
            queue = self._queues[index]
            if queue.qsize() >= 4_096:
                queue.get_nowait()
            queue.put_nowait(frame)

    def dial_all(self) -> list[asyncio.Task[None]]:
        return [asyncio.create_task(self._dial(peer)) for peer in self._queues]

    async def welcome(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Take a connection that a peer opened: the listener's side of the handshake, then its messages."""
        keys = self._keys
        try:
            async with asyncio.timeout(5):
                hello = unpack(await read_frame(reader, MAX_HANDSHAKE))
                reason = self._problem(hello)
                if reason:
                    writer.write(framed(pack([5, reason])))
                    return
                own_key, nonce, peer = keys.genesis.keys[keys.index], os.urandom(32), hello[3]
                signed = self._signed("listener", hello, own_key, nonce)
                writer.write(framed(pack([2, own_key, nonce, keys.own.sign(signed).signature])))
                tag, signature = unpack(await read_frame(reader, MAX_HANDSHAKE))
                if tag != 3 or not keys.verify(peer, self._signed("dialer", hello, own_key, nonce), signature):
                    writer.write(framed(pack([5, "bad_signature"])))
                    return
                writer.write(framed(pack([4])))
            while True:
                self._take(peer, await read_frame(reader, MAX_FRAME))
        except (OSError, EOFError, ValueError, TimeoutError):
            pass  # the peer went away or did not keep to the protocol: it dials again
        finally:
            writer.close()

    def _take(self, peer: int, payload: bytes) -> None:
        try:
            self.on_payload(peer, payload)
        except (ValueError, TypeError, BadSignatureError) as error:
            print(f"dropped a message of validator {peer}: {error}", flush=True)

    def _problem(self, hello: Any) -> str:
        if not isinstance(hello, list) or len(hello) != 7 or hello[0] != 1 or len(hello[6]) != 32:
            return "bad_handshake"
        _, version, chain_id, dialer, listener, key, _ = hello
        keys = self._keys
        checks = {
            "wrong_version": version == 1,
            "wrong_chain": chain_id == keys.genesis.chain_id,
            "wrong_validator": listener == keys.index and dialer in self._queues,
        }
        wrong = [reason for reason, holds in checks.items() if not holds]
        return wrong[0] if wrong else "" if key == keys.genesis.keys[dialer] else "wrong_key"

    async def _dial(self, peer: int) -> None:
        while True:
            try:
                if peer in self.addresses:
                    await self._hold(peer)
            except (OSError, EOFError, ValueError, TimeoutError):
                pass  # dialed again below
            await pause(0.1)

    async def _hold(self, peer: int) -> None:
        keys, key = self._keys, self._keys.genesis.keys[peer]
        async with asyncio.timeout(3):
            reader, writer = await asyncio.open_connection(*self.addresses[peer])
        try:
            own_key = keys.genesis.keys[keys.index]
            hello = [1, 1, keys.genesis.chain_id, keys.index, peer, own_key, os.urandom(32)]
            async with asyncio.timeout(5):
                writer.write(framed(pack(hello)))
                tag, its_key, nonce, signature = unpack(await read_frame(reader, MAX_HANDSHAKE))
                if tag != 2 or its_key != key:
                    raise ValueError("another validator answered")
                if not keys.verify(peer, self._signed("listener", hello, key, nonce), signature):
                    raise ValueError("a bad signature")
                proof = keys.own.sign(self._signed("dialer", hello, key, nonce)).signature
                writer.write(framed(pack([3, proof])))
                if unpack(await read_frame(reader, MAX_HANDSHAKE)) != [4]:
                    raise ValueError("refused")
            await self._feed(peer, reader, writer)
        finally:
            writer.close()

    async def _feed(self, peer: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        lost = asyncio.create_task(reader.read(1))  # nothing comes on this connection but its end
        try:
            while not lost.done():
                got = asyncio.create_task(self._queues[peer].get())
                await asyncio.wait((got, lost), return_when=asyncio.FIRST_COMPLETED)
                if not got.done():
                    got.cancel()
                    return
                writer.write(got.result())
                await writer.drain()
        finally:
            lost.cancel()

    @staticmethod
    def _signed(role: str, hello: list[Any], key: bytes, nonce: bytes) -> bytes:
        return pack(["stampede/transport/v1", role, hello, key, nonce])


# --- what is served over HTTP -----------------------------------------------------------------------------------------


class Pages:
    """The pages by which the node is judged."""

    def __init__(self, index: int, fault: str | None) -> None:
        self._index, self._fault = index, fault
        self.validator: Validator | None = None

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            request = (await reader.readuntil(b"\r\n\r\n")).split()[1].decode()
            status, kind, body = self._page(request)
            head = (
                f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
            )
            writer.write(head.encode() + body)
            await writer.drain()
        except (OSError, EOFError):
            pass  # the client went away
        finally:
            writer.close()

    def _page(self, request: str) -> tuple[str, str, bytes]:
        path, _, query = request.partition("?")
        if self.validator is None:
            return "503 Later", "application/json", b'{"error": "not started yet"}'
        if path == "/status":
            return "200 OK", "application/json", json.dumps(self._status(self.validator)).encode()
        if path == "/blocks":
            fields = dict(each.split("=") for each in query.split("&"))
            first, most = int(fields["from"]), int(fields["count"])
            triples = [self._triple(self.validator, block) for block, _ in self.validator.chain[first - 1 :][:most]]
            found = [digest_of(*triple) for triple in triples] if fields.get("digests") == "1" else triples
            return "200 OK", "application/msgpack", pack(found)
        return "404 Not Found", "application/json", b'{"error": "no such page"}'

    def _status(self, validator: Validator) -> dict[str, Any]:
        return {
            "chain_id": validator.keys.genesis.chain_id,
            "index": self._index,
            "height": len(validator.chain),
            "view": validator.view,
            "final_view": validator.final_view,
            "diverged": None,
        }

    def _triple(self, validator: Validator, block: Block) -> list[bytes]:
        executed = validator.executor.done[block.digest]
        is_wrong = self._fault == WRONG_ROOT and block.height >= FAULTY_FROM
        return [block.body, executed.receipts, tagged("wrong", executed.root) if is_wrong else executed.root]


def digest_of(block: bytes, receipts: bytes, root: bytes) -> bytes:
    sizes = len(block).to_bytes(8, "big") + len(receipts).to_bytes(8, "big")
    return blake3(sizes + block + receipts + root).digest()


# --- the whole --------------------------------------------------------------------------------------------------------


def read_page(url: str) -> dict[str, Any]:
    with urllib.request.urlopen(url, timeout=2) as answer:
        page: dict[str, Any] = json.load(answer)
    return page


def read_endpoints(folder: Path, own: int) -> dict[int, dict[str, Any]]:
    """The other validators' addresses by index; none until the file is there."""
    try:
        page = json.loads((folder / "endpoints.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return {each["index"]: each for each in page["validators"] if each["index"] != own}


async def read_genesis(folder: Path, own: int) -> Genesis:
    """The genesis, as soon as a validator serves it."""
    while True:
        for each in read_endpoints(folder, own).values():
            try:
                page = await asyncio.to_thread(read_page, f"{each['url']}/genesis")
                governed = (await asyncio.to_thread(read_page, f"{each['url']}/parameters"))["governed"]
            except (OSError, ValueError):
                continue
            return Genesis(page, governed)
        await pause(0.1)


async def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--index", type=int, required=True)
    parser.add_argument("--seed", required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--executor", required=True)
    parser.add_argument("--fault", choices=(WRONG_ROOT, EQUIVOCATE))
    given = parser.parse_args()
    pages = Pages(given.index, given.fault)
    await asyncio.start_server(pages.answer, "127.0.0.1", given.port + 1)
    genesis = await read_genesis(given.folder, given.index)
    keys = Keys(genesis, given.index, bytes.fromhex(given.seed))
    connections = Connections(keys)
    validator = Validator(keys, Executor(given.executor, genesis), connections.send, given.fault)
    pages.validator, connections.on_payload = validator, validator.on_payload
    await asyncio.start_server(connections.welcome, "127.0.0.1", given.port)
    dialing = connections.dial_all()
    print(f"validator {given.index} of {genesis.chain_id}, genesis {genesis.digest.hex()}", flush=True)
    while not any(task.done() for task in dialing):
        for index, each in read_endpoints(given.folder, given.index).items():
            host, _, port = each["peers"].rpartition(":")
            connections.addresses[index] = host, int(port)
        for _ in range(20):
            validator.tick()
            await pause(0.05)


if __name__ == "__main__":
    asyncio.run(main())
