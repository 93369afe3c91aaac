"""The host: what a running handler may call, and what that costs (``docs/protocol.md``, *Scripts*).

Each call is charged first, then checked, then done.
"""

from __future__ import annotations

from spec import jobs, messages, timers, watches
from spec.encoding import Address, Hash, Scheduled, Sent, is_name, uint, uint_or_null
from spec.runs import Run
from spec.timers import Request
from spec.world import Message, Watch


class Host(Run):
    """A run with the calls that its handler may make."""

    def burn(self, cycles: int) -> None:
        self.world.reached("C-02")
        self.meter.charge(cycles)

    def kv_get(self, key: str) -> bytes | None:
        self.pay(10, rule="C-03")
        return self.world.storage.get((self.actor, key))

    def kv_set(self, key: str, value: bytes) -> None:
        self.change(200, len(key.encode()) + len(value), rule="C-04")
        self._write(key, value)

    def kv_delete(self, key: str) -> None:
        self.change(200, rule="C-05")
        self._write(key, None)

    def _write(self, key: str, value: bytes | None) -> None:
        """Write a value or remove it. If the key is watched, the write pays for its watchers."""
        world, place = self.world, (self.actor, key)
        world.reached("R-04", len(key.encode()) > 256)
        if value is not None or place in world.storage:
            world.reached("R-03" if value is None else "R-02" if place in world.storage else "R-01")
        watched = world.watchable.get(Watch(*place)) if world.watchable and world.policy.has_watches else None
        if watched is not None:
            self.meter.charge(200 + 200 * len(watched[1]))
        if value is None:
            world.drop(world.storage, place)
        else:
            world.put(world.storage, place, value)
        if watched is not None:
            self._note_write(key)

    def _note_write(self, key: str) -> None:
        watch = Watch(self.actor, key)
        self.world.written_keys.add(watch)
        self.changes.append(("watchable", self.actor, key, watches.digest(self.world, watch)))

    def allow_watching(self, key: str, allowed: bool) -> None:
        self.change(200, len(key.encode()))
        if not watches.allow(self.world, Watch(self.actor, key), allowed):
            return
        if allowed:
            self._note_write(key)
        else:
            self.changes.append(("unwatchable", self.actor, key))

    def publish(self, key: str, value: bytes) -> None:
        self.change(200, len(key.encode()) + len(value), rule="P-06")
        self.world.put(self.world.published, (self.actor, key), value)

    def published(self, address: Address, key: str) -> bytes | None:
        self.pay(10)
        return self.world.published.get((address, key))

    def emit(self, name: str, data: str) -> None:
        self.change(50, len(data.encode()), rule="C-06")
        self.world.refuse("C-07", "EventNameTooLong", not is_name(name, may_be_empty=True))
        self.report(name, data=data)

    def transfer(self, to: Address, amount: int) -> None:
        self.change(200, rule="C-09")
        self.world.refuse("C-10", "InsufficientBalance", amount > self.world.balance.get(self.actor, 0))
        self.move(self.actor, to, amount)

    def schedule_timer(self, request: Request) -> Hash:
        world = self.world
        self.change(1_000, len(request.payload), rule="C-12")
        if request.bid is not None and world.policy.bids == "ignored":
            world.reached("T-03")
            self.report("TimerBidIgnored")
        timer, stated = timers.schedule(self, request)
        world.reached("R-07", len(request.payload) > 1_024)
        if stated is not None:
            world.reached("T-19")
            fields = {"stated": str(stated), "clamped": str(timer.priority)}
            self.report("TimerPriorityClampedAtSchedule", timer_id=timer.timer_id.hex(), **fields)
        fees = map(uint_or_null, (timer.max_fee, timer.priority, timer.payer_cap))
        place = timer.trigger_height, timer.sequence, timer.expires_at
        new = Scheduled(timer.timer_id, timer.actor, *place, timer.fee_payer, timer.gas_limit, *fees)
        self.scheduled.append(new)
        if timer.bidding_agent is not None:
            self.changes.append(("bidder", timer.timer_id, timer.bidding_agent))
        if timer.bid:
            self.changes.append(("locked", timer.timer_id, uint(timer.bid)))
        if timer.watch is not None:
            self.changes.append(("watching", timer.timer_id, *timer.watch))
        return timer.timer_id

    def cancel_timer(self, timer_id: bytes) -> None:
        self.change(500, rule="C-13")
        timers.end_unfired(self.world, timers.own_timer(self, timer_id))
        self.world.reached("T-21")
        self.changes.append(("cancelled", timer_id))

    def extend_timer(self, timer_id: bytes, expires_at: int) -> None:
        self.change(500, rule="C-14")
        timer = timers.extend(self.world, timers.own_timer(self, timer_id), expires_at)
        self.changes.append(("extended", timer_id, timer.expires_at))

    def is_pending(self, timer_id: bytes) -> bool:
        self.pay(10, rule="P-08")
        timer = self.world.timers.get(timer_id)
        return timer is not None and timer.actor == self.actor

    def saved_timer(self, key: str) -> bytes:
        """The timer id that is stored under a key as hex digits; empty if there is none."""
        return timers.parse_id((self.kv_get(key) or b"").decode("utf-8", "replace"))

    def set_bidding_agent(self, agent: Address | None) -> None:
        self.change(200)
        timers.name_agent(self.world, self.actor, agent)
        self.changes.append(("bidder", b"", agent or b""))

    def send(
        self, to: Address, handler: str, payload: bytes, cycles: int | None = None, cells: int | None = None
    ) -> None:
        world, p = self.world, self.world.parameters
        self.change(80, rule="C-11")
        cycles = p["MESSAGE_CYCLES"] if cycles is None else cycles
        cells = p["MESSAGE_CELLS"] if cells is None else cells
        if not (2_000 <= cycles <= p["MESSAGE_CYCLES"] and 0 <= cells <= p["MESSAGE_CELLS"]):
            self.pay(0, len(payload))
            raise world.refusal("M-03", "MessageLimitInvalid")
        self.pay(cycles, len(payload) + cells)
        world.refuse("M-04", "TooManyMessages", not self.messages_left)
        messages.send(world, Message(to, self.actor, handler, payload, cycles, cells, self.origin))
        self.messages.append(Sent(to, handler, cycles, cells))
        self.messages_left -= 1
        self.reserved += cycles
        world.reached("M-10", self.allowance is None)

    def request_job(self, payload: bytes, results_needed: int, handler: str) -> Hash:
        world, p = self.world, self.world.parameters
        self.change(500 + p["MESSAGE_CYCLES"], len(payload) + p["MESSAGE_CELLS"])
        world.refuse("M-04", "TooManyMessages", not self.messages_left)
        job_id = jobs.request(world, self.actor, payload, results_needed, handler)
        self.messages_left -= 1
        self.reserved += p["MESSAGE_CYCLES"]
        self.report("JobRequested", job_id=job_id.hex(), handler=handler, results_needed=str(results_needed))
        return job_id

    def consume_result(self, job_id: bytes) -> None:
        self.change(200)
        jobs.consume(self.world, self.actor, job_id, self.callback_of)
        self.report("JobConsumed", job_id=job_id.hex())
