"""Python actors. Their language is not specified here but by ``validator/pvm``, which is passed in as a
:class:`Language`. All that a program can do goes through the calls of its :class:`~spec.host.Host`.
"""

from __future__ import annotations

from typing import Any, Protocol

from spec.encoding import SCRIPT, tagged
from spec.host import Host
from spec.runs import Ended, perform
from spec.scripts import run_script
from spec.world import Failure


class Language(Protocol):
    """What runs programs. Errors of a program are :class:`spec.world.Failure` of its name."""

    def token_cycles(self, source: str) -> int:
        """What a deployment pays for the tokens of a source, beyond its characters."""

    def accepts(self, source: str) -> bool:
        """Whether a source is a program."""

    def bids(self, source: str) -> bool:
        """Whether a program has a ``get_gas_bid``."""

    def run(self, run: Host, code: str, handler: str, payload: bytes) -> None:
        """Run a handler. [P-02] The first run of a program in a block pays for its loading."""

    def bid(self, run: Host, code: str, offered: dict[str, Any]) -> tuple[int | None, int | None]:
        """Ask a program for its bid: a max fee and a priority."""


def code_of(source: str) -> str:
    """The code of the actors that run a program."""
    return "python:" + tagged(b"program", source.encode()).hex()


def run_handler(run: Host, handler: str, payload: bytes) -> None:
    """Run a handler of an actor, by its code."""
    world, code = run.world, run.world.actors[run.actor].code
    if code == SCRIPT:
        run_script(run, payload)
        return
    world.reached("P-01")
    try:
        world.language.run(run, code, handler, payload)
    except Failure as failure:
        world.reached({"UnknownHandler": "P-03", "BadPayload": "P-04"}.get(failure.name, "P-05"))
        raise


def run_charged(run: Host, base_cycles: int, handler: str, payload: bytes) -> Ended:
    """A whole run of a fire, a message or a callback: it is charged the base, and then calls its handler."""

    def body() -> None:
        run.meter.charge(base_cycles)
        run_handler(run, handler, payload)

    return perform(run, body)
