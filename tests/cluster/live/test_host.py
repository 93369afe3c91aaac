"""What a host says of itself when it starts."""

from __future__ import annotations

import pytest

from cluster.live.host import is_known_hash_seed


@pytest.mark.parametrize(
    ("hash_seed", "is_known"),
    [(None, False), ("", False), ("random", False), ("0", True), ("1", True), ("4294967295", True)],
)
def test_a_fixed_hash_seed_is_warned_of(hash_seed: str | None, is_known: bool) -> None:
    assert is_known_hash_seed(hash_seed) is is_known
