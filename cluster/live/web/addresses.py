"""The addresses at which a live testnet can be reached."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import AddressValueError, IPv4Address
from typing import Final

from cluster.common.wording import printable
from validator.primitives.types import parse_decimal

LOOPBACK: Final = "127.0.0.1"
PORTS_VARIABLE: Final = "STAMPEDE_PORTS"
"""Environment variable with the ports on which validators may listen, ``FIRST-LAST``; by default any free ones."""
LOAD_LISTEN_VARIABLE: Final = "STAMPEDE_LOAD_LISTEN"
"""Environment variable with the ``host:port`` at which the load's master takes workers; unset if there is no master."""
LOAD_WORKERS_VARIABLE: Final = "STAMPEDE_LOAD_WORKERS"
"""Environment variable with the number of workers with which the load begins."""
ANY_PORT: Final = range(1)
MAX_PORT: Final = 65_535
SHOWN_CHARACTERS: Final = 40


@dataclass(frozen=True, slots=True)
class Served:
    """The address of a live testnet, unless Ray has several nodes: then hosts listen at their nodes' addresses."""

    bind: str = LOOPBACK
    """Address of the machine for the testnet's own endpoint, the validators' pages and their streams."""
    port: int = 0
    """Port of the testnet's own endpoint; 0 means a free one."""
    tells_dashboard: bool = field(default=False, compare=False)
    """Whether a notice names the address of the dashboard. The endpoint serves it in any case."""

    def __str__(self) -> str:
        return f"{self.bind}, {f'port {self.port}' if self.port else 'a free port'}"


def listening_address(text: object) -> str:
    """Parse an address to listen at that other machines can reach. Raises :class:`ValueError`."""
    try:
        address = IPv4Address(text if isinstance(text, str) else "")
    except AddressValueError:
        raise ValueError(f"{text!r} is no IPv4 address: expected one of this machine") from None
    if address.is_unspecified or address.is_multicast:
        raise ValueError(f"{address} is no address that others can be told: expected one of this machine")
    return str(address)


def ports_from(environment: Mapping[str, str]) -> range:
    """The ports to try, in this order; port 0 means a free one. Raises :class:`ValueError`."""
    given = environment.get(PORTS_VARIABLE)
    if not given:
        return ANY_PORT
    first, _, last = given.partition("-")
    least, most = parse_decimal(first, MAX_PORT), parse_decimal(last, MAX_PORT)
    if least and most and least <= most:
        return range(least, most + 1)
    raise ValueError(
        f"{PORTS_VARIABLE}={printable(given)[:SHOWN_CHARACTERS]}: expected FIRST-LAST, two ports from 1 to {MAX_PORT:,}"
    )


ON_THE_LOOPBACK: Final = Served()
