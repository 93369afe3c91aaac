"""The host calls and values on ``self``, as programs use them: each charges, checks its arguments and calls the host.

A call's price is charged before its arguments are read, so a call with a wrong argument is paid for (SPEC §2). Costs
that depend on the arguments (the cycles of ``burn``, those that ``send`` reserves, cells) are charged once they are
known.

Names and parameters are in :mod:`validator.pvm.language.api`. Values go to the host as canonical MessagePack
(:mod:`validator.pvm.runtime.values`), and return in the same form.
"""

from __future__ import annotations

from validator.chain.records import DEFAULT_HANDLER, Watch
from validator.primitives import costs
from validator.primitives.limits import MAX_STORAGE_KEY
from validator.primitives.types import ADDRESS_BYTES, Address
from validator.pvm.compiler.weights import BYTES_PER_CYCLE, KECCAK_BYTES_PER_CYCLE, KEY_BYTES_PER_CYCLE, WIDE_CODING
from validator.pvm.runtime.host import TIERS, Host, ScheduleRequest
from validator.pvm.runtime.operations import Value, fault, is_number, kind_of, refuse, shown, text_size
from validator.pvm.runtime.values import pack, unpack


class HostReads:
    """The host values of the running handler: one method with the prefix ``read_`` for each name of ``HOST_READS``."""

    def __init__(self) -> None:
        self.context: Host | None = None

    @property
    def _host(self) -> Host:
        assert self.context is not None, "a handler runs"
        return self.context

    def read_height(self) -> int:
        return self._host.height

    def read_sender(self) -> bytes:
        return bytes(self._host.sender)

    def read_origin_hash(self) -> bytes:
        return bytes(self._host.origin)

    def read_address(self) -> bytes:
        return bytes(self._host.actor)

    def read_deployer(self) -> bytes:
        actor = self._host.world.actor(self._host.actor)
        assert actor is not None, "an actor runs"
        return bytes(actor.deployer)

    def read_balance(self) -> int:
        return self._host.world.balance(self._host.actor)

    def read_value(self) -> int:
        return self._host.value

    def read_lane_price(self) -> int:
        return self._host.terms.fee_floor


class HostCalls(HostReads):
    """The host calls of the running handler: one method for each name of ``HOST_CALLS``; and its host values."""

    def _charge(self, cycles: int) -> None:
        """Charge the host's meter, which counts the cycles during a host call."""
        self._host.meter.charge(cycles)

    # --- arguments ----------------------------------------------------------------------------------------------------

    def _key(self, value: Value) -> str:
        """Check a storage key, and charge for its size."""
        key = _text(value)
        self._charge(max(0, text_size(key) - costs.NAME_BYTES_INCLUDED) // KEY_BYTES_PER_CYCLE)
        return key

    def _watch(self, value: Value) -> Watch:
        """Check a key that a timer is to watch, given as a tuple of an actor's address and a storage key."""
        if value.__class__ is not tuple or len(value) != 2:
            fault("TypeError", f"watch: expected a pair of address and key, got {kind_of(value)}")
        return Watch(_address(value[0]), self._key(value[1]))

    def _name(self, value: Value) -> str:
        """Check the name of a handler or an event, and charge for its bytes, which go into receipts or state."""
        name = _text(value)
        self._charge(max(0, len(name.encode()) - costs.NAME_BYTES_INCLUDED))
        return name

    def _payload(self, value: Value) -> bytes:
        """Encode a payload. ``None`` is encoded as empty bytes."""
        return b"" if value is None else pack(value, self._charge)

    # --- storage ------------------------------------------------------------------------------------------------------

    def get(self, key: Value, default: Value = None) -> Value:
        self._host.prepay(costs.KV_GET_CYCLES)
        stored = self._host.kv_get(self._key(key))
        return default if stored is None else unpack(stored, self._charge)

    def set(self, key: Value, value: Value) -> None:
        self._host.prepay(costs.KV_SET_CYCLES)
        self._host.kv_set(self._key(key), pack(value, self._charge))

    def delete(self, key: Value) -> None:
        self._host.prepay(costs.KV_DELETE_CYCLES)
        self._host.kv_delete(self._key(key))

    def allow_watching(self, key: Value, allowed: Value = True) -> None:
        self._host.prepay(costs.ALLOW_WATCHING_CYCLES)
        if allowed.__class__ is not bool:
            refuse(allowed, "a truth value")
        self._host.allow_watching(self._key(key), bool(allowed))

    # --- published values ---------------------------------------------------------------------------------------------

    def publish(self, key: Value, value: Value) -> None:
        self._host.prepay(costs.PUBLISH_CYCLES)
        self._host.publish(self._key(key), pack(value, self._charge))

    def published(self, address: Value, key: Value) -> Value:
        self._host.prepay(costs.PUBLISHED_CYCLES)
        found = self._host.published(_address(address), self._key(key))
        return None if found is None else unpack(found, self._charge)

    # --- timers -------------------------------------------------------------------------------------------------------

    def schedule(
        self,
        height: Value = None,
        payload: Value = None,
        handler: Value = DEFAULT_HANDLER,
        fee_payer: Value = None,
        gas_limit: Value = None,
        expires_at: Value = None,
        max_fee_per_cycle: Value = None,
        max_priority_fee_per_cycle: Value = None,
        payer_cap: Value = None,
        tier: Value = None,
        bid: Value = None,
        bidding_agent: Value = None,
        watch: Value = None,
    ) -> bytes:
        self._host.prepay(costs.SCHEDULE_TIMER_CYCLES)
        if tier is not None and _text(tier) not in TIERS:
            fault("ValueError", f"tier: expected one of {', '.join(TIERS)}, got {shown(tier)}")
        if watch is not None and height is not None:
            fault("ValueError", "a timer has a height, or watches a key, not both")
        at, packed = _number(height) if watch is None else None, self._payload(payload)
        self._charge(
            max(0, len(packed) - costs.NAME_BYTES_INCLUDED) // KECCAK_BYTES_PER_CYCLE
        )  # the id is a hash of it
        request = ScheduleRequest(
            height=at,
            payload=packed,
            handler=self._name(handler),
            fee_payer=None if fee_payer is None else _address(fee_payer),
            gas_limit=_optional(gas_limit),
            expires_at=_optional(expires_at),
            max_fee_per_cycle=_optional(max_fee_per_cycle),
            max_priority_fee_per_cycle=_optional(max_priority_fee_per_cycle),
            payer_cap=_optional(payer_cap),
            tier=tier,
            bid=_optional(bid),
            bidding_agent=None if bidding_agent is None else _address(bidding_agent),
            watch=None if watch is None else self._watch(watch),
        )
        return bytes(self._host.schedule_timer(request))

    schedule_timer = schedule_timer_ex = schedule

    def set_bidding_agent(self, agent: Value) -> None:
        self._host.prepay(costs.SET_BIDDING_AGENT_CYCLES)
        self._host.set_bidding_agent(None if agent is None else _address(agent))

    def cancel(self, timer_id: Value) -> None:
        self._host.prepay(costs.CANCEL_TIMER_CYCLES)
        self._host.cancel_timer(_bytes(timer_id))

    def extend(self, timer_id: Value, expires_at: Value) -> None:
        self._host.prepay(costs.EXTEND_TIMER_CYCLES)
        self._host.extend_timer(_bytes(timer_id), _number(expires_at))

    def pending(self, timer_id: Value) -> bool:
        self._host.prepay(costs.PENDING_CYCLES)
        return self._host.is_pending(_bytes(timer_id))

    # --- others -------------------------------------------------------------------------------------------------------

    def send(self, to: Value, handler: Value, payload: Value = None, cycles: Value = None, cells: Value = None) -> None:
        self._host.prepay(costs.SEND_CYCLES)
        packed = self._payload(payload)
        self._host.send(_address(to), self._name(handler), packed, _optional(cycles), _optional(cells))

    def transfer(self, to: Value, amount: Value) -> None:
        self._host.prepay(costs.TRANSFER_CYCLES)
        self._host.transfer(_address(to), _natural(amount))

    def emit(self, name: Value, data: Value = "") -> None:
        """Add an event; numbers are shown in decimal, bytes in hex."""
        self._host.prepay(costs.EMIT_CYCLES)
        if is_number(data):
            data = str(int(data))
        elif data.__class__ is bytes:
            self._charge(8 * len(data) // BYTES_PER_CYCLE)
            data = data.hex()
        elif data.__class__ is not str:
            refuse(data, "a text, a number or bytes as an event's data")
        self._charge(len(data) * (1 if data.isascii() else WIDE_CODING) // BYTES_PER_CYCLE)
        self._host.emit(self._name(name), data)

    def burn(self, cycles: Value) -> None:
        self._host.burn(_natural(cycles))

    # --- jobs ---------------------------------------------------------------------------------------------------------

    def request_job(self, payload: Value, results_needed: Value, handler: Value) -> bytes:
        self._host.prepay(costs.REQUEST_JOB_CYCLES + self._host.terms.parameters.message_cycles)
        packed = pack(payload, self._charge)
        return bytes(self._host.request_job(packed, _number(results_needed), self._name(handler)))

    def consume_result(self, job_id: Value) -> None:
        self._host.prepay(costs.CONSUME_RESULT_CYCLES)
        self._host.consume_result(_bytes(job_id))


def _text(value: Value) -> str:
    if value.__class__ is not str:
        refuse(value, "a text")
    if len(value) > MAX_STORAGE_KEY:
        fault("ValueTooLarge", f"a name or key of {len(value):,} characters, at most {MAX_STORAGE_KEY:,}")
    return str(value)


def _number(value: Value) -> int:
    if not is_number(value):
        refuse(value, "a number")
    return int(value)


def _optional(value: Value) -> int | None:
    return None if value is None else _number(value)


def _natural(value: Value) -> int:
    if _number(value) < 0:
        fault("ValueError", f"{value} is negative")
    return int(value)


def _bytes(value: Value) -> bytes:
    if value.__class__ is not bytes:
        refuse(value, "bytes")
    return bytes(value)


def _address(value: Value) -> Address:
    if len(_bytes(value)) != ADDRESS_BYTES:
        fault("ValueError", f"an address has {ADDRESS_BYTES} bytes, not {len(value):,}")
    return Address(value)
