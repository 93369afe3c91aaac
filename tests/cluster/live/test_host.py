"""What a host says of itself when it starts."""

from __future__ import annotations

import pytest

from cluster.live.host import gives_hash_seed_away


@pytest.mark.parametrize(
    ("hash_seed", "bind", "is_given_away"),
    [
        (None, "10.0.0.7", False),
        ("", "10.0.0.7", False),
        ("random", "10.0.0.7", False),
        ("0", "10.0.0.7", True),
        ("4294967295", "10.0.0.7", True),
        ("1", "127.0.0.1", False),
    ],
)
def test_a_fixed_hash_seed_is_warned_of_where_others_can_read_it(
    hash_seed: str | None, bind: str, is_given_away: bool
) -> None:
    assert gives_hash_seed_away(hash_seed, bind) is is_given_away
