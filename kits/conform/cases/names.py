"""Accounts, actors and keys that generated cases use."""

from __future__ import annotations

from typing import Final

DEPLOYER: Final = "0x" + "d0" * 20
PROPOSERS: Final = ["0x" + "e1" * 20, "0x" + "E2" * 20, "0x" + "00" * 20]
STRANGER: Final = "0x" + "77" * 20
USERS: Final = ["0x" + f"{0xA0 + index:02x}" * 20 for index in range(4)]
ACTORS: Final = ["0x" + f"{0x10 + index:02x}" * 20 for index in range(7)]
KEYS: Final = ["a", "b", "schlüssel", ""]
TIERS: Final = ["economy", "standard", "fast", "urgent"]
