"""The chain that runs along with a case in the making: what a generator may ask of it.

It executes each block as soon as it is made, so it also has this implementation's answer to the case.
"""

from __future__ import annotations

from typing import Any

from kits.conform.t8n import Page, ShownChain
from kits.conform.t8n_input import blocks_of, genesis_of
from validator.chain.records import MESSAGE, WATCHABLE, Account, Actor, Timer, account_key, actor_key, decode_record
from validator.execution.governance import parameters_in_force
from validator.primitives.types import ADDRESS_BYTES, address_text
from validator.state.working_set import World


class RunningChain:
    """A case's chain after the blocks that were made so far. Addresses are lower-case texts, ids hex."""

    def __init__(self, genesis: Page) -> None:
        """Begin with a genesis document. Raises :class:`~cluster.common.strict_json.Wrong`."""
        self.genesis = genesis_of(genesis)
        self.policy: str = self.genesis.policy.value
        self.actors = sorted(address_text(address) for address in self.genesis.actors)
        """The actors of the genesis, then those that were deployed."""
        self._chain = ShownChain(self.genesis)
        self._pages: list[Page] = []
        self._params: dict[str, Any] | None = None

    @property
    def height(self) -> int:
        """Height of the last block."""
        return self._chain.view.height

    @property
    def params(self) -> dict[str, Any]:
        """The parameters of the next block, keyed by name."""
        if self._params is None:
            self._params = parameters_in_force(World(self._chain.view), self.genesis.parameters).to_names()
        return self._params

    @property
    def basefee_cycle(self) -> int:
        """The cycle's basefee in the next block."""
        return self._chain.globals.basefee_cycle

    @property
    def basefee_cell(self) -> int:
        """The cell's basefee in the next block."""
        return self._chain.globals.basefee_cell

    @property
    def basefee_lane(self) -> int:
        """The lane's basefee in the next block."""
        return self._chain.globals.basefee_lane_timer

    @property
    def lane_price(self) -> int:
        """The lane price of the next block under ``cip1``, after activation."""
        return int(self.basefee_lane * self.params["LANE_FEE_MULTIPLIER_MILLI"] // 1_000)

    @property
    def p50_tip(self) -> int:
        """The median tip that is in force in the next block."""
        return self._chain.globals.p50_tip

    def block(self, block: Page) -> list[Page]:
        """Execute a block of the input; returns the output's pages: several if it is repeated."""
        (made,) = blocks_of([block], self.genesis)
        pages = self._chain.execute(made)
        self._pages += pages
        self._params = None
        self.actors += [tx["created"] for page in pages for tx in page["txs"] if "created" in tx]
        return pages

    def answer(self) -> Page:
        """The tool's output for the blocks so far."""
        return {"blocks": list(self._pages), "final": self._chain.final_page()}

    def nonce(self, sender: str) -> int:
        """The next nonce of an account."""
        return self._account(sender).nonce

    def balance(self, address: str) -> int:
        """The balance of an account or actor."""
        return self._account(address).balance

    def timers(self) -> list[Timer]:
        """Live timers in the order of their trigger heights."""
        return self._chain.timers()

    def timer_ids(self) -> list[str]:
        """Ids of the live timers, ascending."""
        return sorted(timer.timer_id.hex() for timer in self._chain.timers())

    def mailbox_bytes(self, address: str) -> int:
        """Total size of the payloads that wait for an actor."""
        key = actor_key(_bytes(address))
        data = self._chain.view.get(key)
        assert data is not None, "only actors have mailboxes"
        actor: Actor = decode_record(key, data)
        return actor.mailbox_bytes

    def messages(self) -> int:
        """Number of messages that wait."""
        return sum(1 for _ in self._chain.view.scan(MESSAGE))

    def watchable(self) -> list[tuple[str, str]]:
        """Keys that may be watched, as actor and key, ascending."""
        keys = (key[1:] for key, _ in self._chain.view.scan(WATCHABLE))
        return sorted((address_text(key[:ADDRESS_BYTES]), key[ADDRESS_BYTES:].decode()) for key in keys)

    def _account(self, address: str) -> Account:
        key = account_key(_bytes(address))
        data = self._chain.view.get(key)
        return Account() if data is None else decode_record(key, data)


def _bytes(address: str) -> bytes:
    return bytes.fromhex(address[2:])
