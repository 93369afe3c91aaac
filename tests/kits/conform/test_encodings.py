"""Cases about bytes: validator and specification judge them alike, and each wrong decoder is found by its family."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from nacl.bindings import crypto_core_ed25519_is_valid_point

from cluster.commands.cli.main import main
from cluster.common.errors import ExitCode
from cluster.common.strict_json import Wrong
from consensus import certificates, messages
from consensus.keys import Ed25519Scheme
from kits.conform import decode
from kits.conform.case import Case, Page, Reference
from kits.conform.decode import decoded, decoded_by_spec
from kits.conform.difference import first_difference
from kits.conform.families import encodings
from kits.conform.source import GeneratedCases
from kits.conform.sweep import judge
from kits.conform.tool import FileTool, Unsupported
from tests.kits.conform.test_sweep import OWN
from tests.kits.conform.test_tool import serve
from validator.chain import transactions
from validator.primitives import codec
from validator.state import proof
from validator.transition.genesis_block import genesis_header

FAMILIES = list(encodings.family.families)
SMALL = [name for name in FAMILIES if name != "transaction-sizes"]


class Decoder:
    """This implementation's decoders as a tool."""

    def answer(self, case: Case, wants_steps: bool = False) -> Page:
        return json.loads(json.dumps(decoded(case.decode)))

    def close(self) -> None:
        pass


@pytest.mark.parametrize("name", FAMILIES)
def test_both_implementations_judge_alike_and_both_ways(name: str) -> None:
    answered = GeneratedCases((name,), range(1)).load(Reference(name, 0))
    assert judge(answered, Decoder(), has_roots=True).kind == ""
    assert first_difference(decoded_by_spec(answered.case.decode), answered.answer) is None
    assert {next(iter(each)) for each in answered.answer["decoded"]} == {"accepted", "refused"}


def lenient_codec(data: bytes, kind: Any) -> Any:
    """A decoder that takes any spelling of a value."""
    try:
        return msgspec.msgpack.decode(data, type=kind)
    except (msgspec.MsgspecError, ValueError) as error:
        raise codec.CodecError(str(error)) from None


def unsigned(wire: bytes, chain_id: str) -> Any:
    return transactions.parse(wire, chain_id, is_signed=False)


def with_small_order(self: Any, key: bytes, message: bytes, signature: bytes) -> bool:
    """A verification that leaves out check 2: it takes any signature of a key that libsodium finds to be no key."""
    return RIGHT(self, key, message, signature) or (
        len(key) == 32 and len(signature) == 64 and not crypto_core_ed25519_is_valid_point(key)
    )


RIGHT: Callable[..., bool] = Ed25519Scheme.verify
RIGHT_HEADER = genesis_header
FAULTS: dict[str, tuple[str, Any, str, Any]] = {
    "any spelling of a transaction": ("transaction-encodings", transactions, "decode", lenient_codec),
    "the signature is not looked at": ("transaction-encodings", decode, "parse", unsigned),
    "a price of any size": ("transaction-fields", transactions, "PRICE_LIMIT", 2**256),
    "a shape of any kind": ("transaction-fields", transactions, "check_shape", lambda transaction: None),
    "a byte less": ("transaction-sizes", transactions, "MAX_TRANSACTION_BYTES", 2**21 - 1),
    "a byte more": ("transaction-sizes", transactions, "MAX_TRANSACTION_BYTES", 2**21 + 1),
    "keys of small order": ("signatures", Ed25519Scheme, "verify", with_small_order),
    "a header in any range": ("block-encodings", decode, "read_block", lambda data: None),
    "a genesis without its root": (
        "genesis-hashes",
        decode,
        "genesis_header",
        lambda genesis, root: RIGHT_HEADER(genesis, b""),
    ),
    "a vote too few": ("certificates", certificates, "_is_quorum", lambda signers, committee: len(signers) > 0),
    "votes of any form": ("certificates", messages, "_check_subject", lambda *given: None),
    "another key's proof": ("state-proofs", proof, "lies_between", lambda place, low, high: True),
    "a proof for any root": ("state-proofs", proof, "state_root", lambda *given: given[0]),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_wrong_decoder_is_found(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    family, owner, name, wrong = FAULTS[fault]
    answered = GeneratedCases((family,), range(1)).load(Reference(family, 0))
    monkeypatch.setattr(owner, name, wrong)
    result = judge(answered, Decoder(), has_roots=True)
    assert result.kind.startswith("decoded"), fault


def test_reasons_are_not_compared() -> None:
    mine = {"decoded": [{"refused": "this"}, {"accepted": {"a": 1}}]}
    assert first_difference(mine, {"decoded": [{"refused": "that"}, {"accepted": {"a": "1"}}]}) is None
    found = first_difference(mine, {"decoded": [{"accepted": {}}, {"accepted": {"a": 1}}]})
    assert found is not None
    assert found.path.startswith("decoded[0]")
    found = first_difference(mine, {"decoded": [{"refused": "that"}, {"accepted": {"a": 2}}]})
    assert found is not None
    assert found.text == "decoded[1].accepted.a: expected 1, got 2"


def test_t8n_answers_requests_about_bytes() -> None:
    request = {"signature": "00" * 64, "public_key": "00" * 32, "message": ""}
    good, wrong = serve({"decode": [request]}, {"decode": [{"message": "00"}]})
    assert good == {"decoded": [{"refused": "bad signature"}]}
    assert wrong == {"error": "decode[0]: expected one of transaction, signature, block, genesis, certificate, proof"}


@pytest.mark.parametrize("given", [{}, [1], [{"block": "0"}], [{"block": "00", "key": "00"}], [{"proof": "00"}]])
def test_a_malformed_request_is_an_error(given: Any) -> None:
    with pytest.raises(Wrong, match=r"decode"):
        decoded(given)


def test_a_program_with_files_is_not_asked() -> None:
    with pytest.raises(Unsupported):
        FileTool(["false"], 1).answer(Case("signatures", 0, "", {}, [], [{"block": "00"}]))


@pytest.mark.slow
def test_a_sweep_shrinks_a_case_about_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine.py").write_text(
        "from kits.conform import decode\n"
        "from kits.conform.references import REFERENCES\n"
        "import sys\n"
        "from kits.conform.t8n import serve_t8n\n"
        "decode._JUDGES['signature'] = lambda given: {}\n"
        "serve_t8n(sys.stdin.buffer, sys.stdout)\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[3]))
    options = ["--family", "signatures", "--seeds", "0:1", "--workers", "1", "--out", str(tmp_path / "out")]
    tool = f"{OWN.split()[0]} {tmp_path / 'mine.py'}"
    assert main(["conform", "--tool", tool, "--serve", *options]) == ExitCode.FAIL
    folder = tmp_path / "out" / "signatures-0"
    assert {path.name for path in folder.iterdir()} == {"request.json", "expected.json", "got.json", "index.html"}
    assert len(json.loads((folder / "request.json").read_text())["decode"]) == 1
    assert "decoded[0]" in (folder / "index.html").read_text(encoding="utf-8")
