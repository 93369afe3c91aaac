"""The parameters as an observer follows them: the genesis's, and what system instructions changed since (SPEC §12)."""

from __future__ import annotations

from dataclasses import replace

from validator.primitives import script_json
from validator.primitives.errors import BadScript
from validator.primitives.params import GOVERNED, ParameterError, Parameters, parse_value


class GovernedParameters:
    """The parameters in force, block after block."""

    def __init__(self, genesis: Parameters) -> None:
        self.in_force = genesis
        """During the block that is being entered."""
        self._next = genesis

    def begin_block(self) -> None:
        """What was changed up to the block before is in force now."""
        self.in_force = self._next

    def changed_by(self, config: str) -> Parameters | None:
        """The next block's parameters with a change made, ``None`` where the change is none that may be made."""
        try:
            given = script_json.parse(config.encode())
            if not isinstance(given, dict) or not GOVERNED.issuperset(given):
                return None
            return replace(self._next, **{name.lower(): parse_value(name, value) for name, value in given.items()})
        except (BadScript, ParameterError, UnicodeEncodeError):
            return None

    def change(self, parameters: Parameters) -> None:
        """These are in force from the next block on."""
        self._next = parameters
