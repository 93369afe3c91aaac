"""The vectors of ``docs/peer-protocol.md``: by our code, by other libraries, and on the page."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, Final, get_args

import msgpack
import pytest
from blake3 import blake3
from Crypto.PublicKey import ECC
from Crypto.Signature import eddsa

from cluster.live.network import handshake
from cluster.live.network.handshake import REASONS, HandshakeMessage, Refused, decode_handshake
from consensus import messages as engine
from consensus.certificates import verify_signed
from consensus.messages import MessageError
from tests.cluster.live.network import wire_vectors
from tests.cluster.live.network.wire_vectors import FOLDER, NAMESPACE, VALIDATORS, plain, text_of
from validator.chain import messages as peer
from validator.primitives.codec import CodecError

PAGE: Final = Path(__file__).resolve().parents[4] / "docs" / "peer-protocol.md"
PINNED: Final[dict[str, Any]] = {path.name: json.loads(path.read_bytes()) for path in sorted(FOLDER.glob("*.json"))}
CONSENSUS: Final = ("simplex.json", "hotstuff.json")
MESSAGES: Final = [each for name in CONSENSUS for each in PINNED[name]["messages"]]
FRAMES: Final = [each for transcript in PINNED["handshake.json"]["transcripts"] for each in transcript["frames"]]


def names_of(pages: list[dict[str, Any]]) -> set[str]:
    return {page["message"] for page in pages}


# --- our code ---------------------------------------------------------------------------------------------------------


def test_our_code_makes_the_vectors() -> None:
    made = wire_vectors.files()
    assert made.keys() == PINNED.keys()
    for name, page in made.items():
        assert text_of(page) == (FOLDER / name).read_text(encoding="utf-8"), name


def test_our_code_reads_the_vectors() -> None:
    for page in PINNED["peer.json"]["messages"]:
        message = peer.decode_message(bytes.fromhex(page["hex"]))
        assert (type(message).__name__, plain(message)) == (page["message"], page["fields"])
    for page in MESSAGES:
        decode = engine.decode if page["tag"] < 16 else engine.decode_evidence
        found = decode(bytes.fromhex(page["hex"]))
        assert (type(found).__name__, plain(found)) == (page["message"], page["fields"])
    for frame in FRAMES:
        encoded = bytes.fromhex(frame["hex"])[4:]
        if frame["message"] == "Refusal":
            with pytest.raises(Refused, match=frame["fields"]["reason"]):
                decode_handshake(encoded)
        else:
            assert plain(decode_handshake(encoded)) == frame["fields"]


@pytest.mark.parametrize(
    ("decoder", "error"), [("peer", CodecError), ("consensus", MessageError), ("handshake", Refused)]
)
def test_our_code_refuses_what_must_be_refused(decoder: str, error: type[Exception]) -> None:
    decode = {"peer": peer.decode_message, "consensus": engine.decode, "handshake": decode_handshake}[decoder]
    for case in PINNED["refused.json"][decoder]:
        with pytest.raises(error):
            decode(bytes.fromhex(case["hex"]))


def test_every_message_of_the_code_has_a_vector() -> None:
    handshakes = {kind.__name__ for kind in get_args(HandshakeMessage)}
    assert names_of(FRAMES) == handshakes
    assert names_of(PINNED["peer.json"]["messages"]) == {kind.__name__ for kind in get_args(peer.PeerMessage)}
    kinds = (*get_args(engine.Message), *get_args(engine.Evidence))
    assert names_of(MESSAGES) == {kind.__name__ for kind in kinds}
    refusals = {frame["fields"]["reason"] for frame in FRAMES if frame["message"] == "Refusal"}
    assert refusals == REASONS - {"not_expected"}, "that one ends a connection after its handshake"


def test_every_kind_of_vote_and_certificate_has_a_vector() -> None:
    for name, gives_up in (("simplex.json", 2), ("hotstuff.json", 4)):
        kinds = {each["fields"]["kind"] for each in PINNED[name]["messages"] if each["message"] == "Certificate"}
        voted = {each["fields"]["kind"] for each in PINNED[name]["messages"] if each["message"] == "Vote"}
        voted |= {4 for each in PINNED[name]["messages"] if each["message"] == "Timeout"}
        assert kinds | ({4} & {gives_up}) == voted == {1, 3, gives_up}


def test_the_certificates_hold_and_the_false_ones_do_not() -> None:
    for name in CONSENSUS:
        for page in PINNED[name]["messages"]:
            if page["message"] in ("Certificate", "TimeoutCertificate"):
                certificate = engine.decode(bytes.fromhex(page["hex"]))
                assert isinstance(certificate, engine.AnyCertificate)
                assert verify_signed(certificate, VALIDATORS, NAMESPACE)
        for page in PINNED[name]["false_certificates"]:
            certificate = engine.decode(bytes.fromhex(page["hex"]))
            assert isinstance(certificate, engine.Certificate), page["why"]
            assert not verify_signed(certificate, VALIDATORS, NAMESPACE), page["why"]


# --- a drift is caught ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("part", "domain", "drifted", "name"),
    [
        (engine, "VOTE_DOMAIN", b"stampede/consensus/vote/2", "simplex.json"),
        (handshake, "DOMAIN", "stampede/transport/v2", "handshake.json"),
    ],
)
def test_a_drift_of_what_is_signed_is_caught(
    part: Any, domain: str, drifted: object, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(part, domain, drifted)
    assert wire_vectors.files()[name] != PINNED[name]


# --- independently ----------------------------------------------------------------------------------------------------


def listed(page: dict[str, Any]) -> list[Any]:
    """The array that a vector's fields make, bytes in hex; ``signed`` and names left out."""
    return [page["tag"], *map(_unnamed, page["fields"].values())]


def _unnamed(value: Any) -> Any:
    if isinstance(value, dict):
        fields = [_unnamed(each) for each in value.values()]
        tag = {("kind", "signer"): 1, ("kind", "signers"): 3}.get((next(iter(value)), list(value)[-2]))
        return fields if tag is None else [tag, *fields]
    return [_unnamed(each) for each in value] if isinstance(value, list) else value


def in_hex(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.hex()
    return [in_hex(each) for each in value] if isinstance(value, list) else value


def test_another_library_reads_and_writes_the_same_bytes() -> None:
    for page in (*PINNED["peer.json"]["messages"], *MESSAGES):
        encoded = bytes.fromhex(page["hex"])
        value = msgpack.unpackb(encoded, raw=False)
        assert msgpack.packb(value, use_bin_type=True) == encoded
        is_enveloped = page in PINNED["peer.json"]["messages"]
        assert in_hex(value) == ([listed(page)] if is_enveloped else listed(page)), page["about"]
    for frame in FRAMES:
        encoded = bytes.fromhex(frame["hex"])
        assert int.from_bytes(encoded[:4], "big") == len(encoded) - 4
        assert in_hex(msgpack.unpackb(encoded[4:])) == listed(frame)


def signature_holds(key: str, message: bytes, signature: str) -> bool:
    try:
        eddsa.new(ECC.import_key(_der(bytes.fromhex(key))), "rfc8032").verify(message, bytes.fromhex(signature))
    except ValueError:
        return False
    return True


def _der(key: bytes) -> bytes:
    return bytes.fromhex("302a300506032b6570032100") + key


def votes_in(page: dict[str, Any]) -> list[tuple[int, str]]:
    """Signers and signatures of a message, in order."""
    fields = page["fields"]
    match page["message"]:
        case "Vote":
            return [(fields["signer"], fields["signature"])]
        case "Proposal" | "Timeout":
            return [(fields["vote"]["signer"], fields["vote"]["signature"])]
        case "Certificate" | "TimeoutCertificate":
            bitmap, signatures = bytes.fromhex(fields["signers"]), fields["signatures"]
            signers = [i for i in range(8 * len(bitmap)) if bitmap[i // 8] >> (i % 8) & 1]
            return [(signer, signatures[128 * n : 128 * n + 128]) for n, signer in enumerate(signers)]
        case "CertificateRequest":
            return []
        case _:
            return [(fields[each]["signer"], fields[each]["signature"]) for each in ("first", "second")]


@pytest.mark.parametrize("name", CONSENSUS)
def test_another_library_verifies_the_signatures(name: str) -> None:
    file = PINNED[name]
    prefix = b"stampede/consensus/vote/1" + bytes([len(file["chain_id"])]) + file["chain_id"].encode()
    checked = 0
    for page in file["messages"]:
        votes = votes_in(page)
        assert [signer for signer, _ in votes] == [each["signer"] for each in page.get("signed", [])]
        for (signer, signature), signed in zip(votes, page.get("signed", []), strict=True):
            message = bytes.fromhex(signed["bytes"])
            assert message.startswith(prefix)
            assert signature_holds(file["public_keys"][signer], message, signature)
            assert not signature_holds(file["public_keys"][signer], message + b"\0", signature)
            checked += 1
    assert checked >= 20


def test_another_library_verifies_the_handshake() -> None:
    file = PINNED["handshake.json"]
    (hello, welcome, proof, accepted), keys = file["transcripts"][0]["frames"], file["public_keys"]
    assert accepted["message"] == "Accepted"
    greeting = msgpack.unpackb(bytes.fromhex(hello["hex"])[4:])
    key, nonce = (bytes.fromhex(welcome["fields"][name]) for name in ("listener_key", "nonce"))
    for role, frame, index in (("listener", welcome, 2), ("dialer", proof, 1)):
        signed = msgpack.packb(["stampede/transport/v1", role, greeting, key, nonce])
        assert signed.hex() == file["transcripts"][0][f"{role}_signs"]
        assert signature_holds(keys[index], signed, frame["fields"]["signature"])


def test_digests_are_of_the_headers() -> None:
    (page,) = (each for each in PINNED["simplex.json"]["messages"] if each["message"] == "Proposal")
    header, _ = msgpack.unpackb(bytes.fromhex(page["fields"]["body"]))
    assert blake3(b"\x06header" + msgpack.packb(header)).hexdigest() == page["fields"]["digest"]


# --- the page ---------------------------------------------------------------------------------------------------------


def rows(page: str, heading: str) -> list[list[str]]:
    """The cells of the first table below a heading."""
    lines = page.split(f"\n## {heading}\n", 1)[1].split("\n|", 1)[1].split("\n\n", 1)[0].splitlines()[2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def tags_and_fields(kinds: tuple[type, ...]) -> set[tuple[int, str, tuple[str, ...]]]:
    return {(kind.__struct_config__.tag, kind.__name__, kind.__struct_fields__) for kind in kinds}  # type: ignore[attr-defined]


def on_the_page(table: list[list[str]], fields: int) -> set[tuple[int, str, tuple[str, ...]]]:
    return {
        (int(row[0]), row[1], tuple(re.findall(r"(?:^|, )(\w+) (?:bin|int|array|Vote|Certificate)", row[fields])))
        for row in table
    }


def test_the_page_has_the_tags_and_fields_of_every_message() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert on_the_page(rows(page, "Messages"), 2) == tags_and_fields(get_args(peer.PeerMessage))
    assert on_the_page(rows(page, "Messages of consensus"), 2) == tags_and_fields(get_args(engine.Message))
    shown = {(int(row[2]), row[1]) for row in rows(page, "Handshake")}
    assert shown == {(tag, name) for tag, name, _ in tags_and_fields(get_args(HandshakeMessage))}


def test_the_page_has_every_reason_of_a_refusal() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert [reason for reason in REASONS if f"`{reason}`" not in page] == []


def test_the_page_shows_the_handshake_of_the_vectors() -> None:
    text = "".join(PAGE.read_text(encoding="utf-8").split())
    transcript = PINNED["handshake.json"]["transcripts"][0]
    for frame in transcript["frames"]:
        assert frame["message"].lower() + frame["hex"] in text
    assert "listener_signs" + transcript["listener_signs"] in text
