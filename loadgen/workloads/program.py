"""Program: each user has its own Python actor, whose handlers it calls.

The calls of ``setup`` are made once, in the first turn. Then each turn makes the next one of ``calls``, in rotation. A
payload is JSON. The handler gets it as a value, in which these objects are replaced:

- ``{"hex": text}``: bytes.
- ``{"actor": n}``, ``{"account": n}``: the addresses of the actor and the account of user ``n``.
- ``{"random": [least, most]}``: a number that each call draws.
- ``{"turn": text}``: the text followed by the number of the user's turn, which is unique.
- ``{"text": [part, …]}``: one text of these parts: texts unchanged, bytes in hex, numbers in decimal.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Final

from pydantic import Field, field_validator

from loadgen.workloads.actor_program import ActorProgram
from loadgen.workloads.base import Intent, Observation, Options, Workload
from validator.chain.transactions import Call
from validator.primitives.errors import HandlerFailure
from validator.primitives.types import ADDRESS_BYTES, Address
from validator.pvm.runtime.values import encode_value

NOBODY: Final = Address(bytes(ADDRESS_BYTES))


class ProgramCall(Options):
    """One call of a handler."""

    handler: Annotated[str, Field(min_length=1, max_length=64)]
    """Name of the handler."""
    payload: Any = None
    """The argument of the handler."""
    gas_limit: Annotated[int, Field(ge=1_000, le=5_000_000)] = 300_000
    """Limit of cycles."""
    cells_limit: Annotated[int, Field(ge=0, le=1_000_000)] = 20_000
    """Limit of cells."""
    value: Annotated[int, Field(ge=0, le=10**20)] = 0
    """Payment to the actor, in the smallest CBY unit."""

    @field_validator("payload")
    @classmethod
    def _payload_is_a_value(cls, payload: Any) -> Any:
        try:
            encode_value(_sample(lambda _number: NOBODY).value(payload))
        except HandlerFailure as failure:
            raise ValueError(f"no value for a handler: {failure.name}") from None
        return payload


class ProgramOptions(Options):
    """Options of :class:`Program`."""

    program: ActorProgram
    """The actor's program: a name in ``actors/``, or the path of a custom file."""
    setup: list[ProgramCall] = []
    """Calls that are made once, in the first turn."""
    calls: list[ProgramCall] = []
    """Calls that are made one per turn, in rotation."""

    @field_validator("program")
    @classmethod
    def _program_has_handlers(cls, program: ActorProgram) -> ActorProgram:
        if program.is_script:
            raise ValueError(f"{program.name} is not called by handlers; expected a Python program")
        return program

    def programs(self) -> dict[str, str]:
        return {"program": self.program.code}

    def users_named(self) -> set[int]:
        found: set[int] = set()

        def note(number: int) -> Address:
            found.add(number)
            return NOBODY

        for call in (*self.setup, *self.calls):
            _sample(note).value(call.payload)
        return found


class Program(Workload[ProgramOptions]):
    """Calls the handlers of one Python actor."""

    name: ClassVar[str] = "program"
    options_type: ClassVar[type[Options]] = ProgramOptions
    _turns = 0

    @classmethod
    def actor_code(cls, options: Options) -> str:
        assert isinstance(options, ProgramOptions)
        return options.program.code

    def intents(self, observation: Observation) -> list[Intent]:
        turn, calls = self._turns, self.options.calls
        self._turns += 1
        if turn == 0 and self.options.setup:
            return [self._intent(call) for call in self.options.setup]
        return [self._intent(calls[turn % len(calls)])] if calls else []

    def _intent(self, call: ProgramCall) -> Intent:
        member = self.member
        filling = _Filling(member.actors.__getitem__, member.peers.__getitem__, member.random.randint, self._turns)
        action = Call(member.actor, call.handler, encode_value(filling.value(call.payload)))
        return Intent(action, call.gas_limit, call.cells_limit, value=call.value)


@dataclass(frozen=True, slots=True)
class _Filling:
    """Replaces the placeholders in a payload. Its fields give the values: addresses, random numbers, the turn."""

    actor: Callable[[int], Address]
    account: Callable[[int], Address]
    draw: Callable[[int, int], int]
    turn: int

    def value(self, given: Any) -> Any:
        """A payload's JSON with its placeholders replaced. Raises :class:`ValueError` for an invalid placeholder, and
        IndexError if there is no such user."""
        if isinstance(given, dict) and len(given) == 1:
            ((name, argument),) = given.items()
            if name in _FILLED:
                return self._filled(name, argument)
        if isinstance(given, dict):
            return {key: self.value(part) for key, part in given.items()}
        return [self.value(part) for part in given] if isinstance(given, list) else given

    def _filled(self, name: str, argument: Any) -> Any:
        match name, argument:
            case "hex", str(text):
                return bytes.fromhex(text)
            case "actor", int(number) if number >= 0:
                return bytes(self.actor(number))
            case "account", int(number) if number >= 0:
                return bytes(self.account(number))
            case "random", [int(least), int(most)] if least <= most:
                return self.draw(least, most)
            case "turn", str(text):
                return f"{text}{self.turn}"
            case "text", [*parts]:
                return "".join(self._text(part) for part in parts)
        raise ValueError(f"{name}: {argument!r} is no {_FILLED[name]}")

    def _text(self, part: Any) -> str:
        match self.value(part):
            case bytes(data):
                return data.hex()
            case str(text):
                return text
            case int(number) if not isinstance(number, bool):
                return str(number)
        raise ValueError(f"text: {part!r} is no text, bytes or number")


def _sample(address: Callable[[int], Address]) -> _Filling:
    """A filling to check payloads before there are users. ``address`` gets the numbers of the users that a payload
    names; nothing is drawn."""
    return _Filling(address, address, lambda least, _most: least, 0)


_FILLED: Final = {
    "hex": "text of hex digits",
    "actor": "number of a user",
    "account": "number of a user",
    "random": "pair of least and most",
    "turn": "text",
    "text": "list of texts, bytes and numbers",
}
