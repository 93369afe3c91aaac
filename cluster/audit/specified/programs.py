"""What runs Python actors for the specification: ``validator/pvm``, whose host is a run of the specification."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from spec.host import Host
from spec.timers import Request
from spec.world import Failure, Refusal, Watch
from validator.primitives.cache import SizedCache
from validator.primitives.errors import HandlerFailure, OutOfCycles, Rejection
from validator.primitives.limits import MAX_LOADED_CYCLES
from validator.pvm.compiler.programs import compiled
from validator.pvm.deployment import refusal, token_cycles
from validator.pvm.runtime.host import ScheduleRequest
from validator.pvm.runtime.machine import PythonVm


class PvmLanguage:
    """The language of Python actors, run by ``validator/pvm`` (:class:`spec.programs.Language`)."""

    def __init__(self) -> None:
        self._vm = PythonVm()

    def token_cycles(self, source: str) -> int:
        return token_cycles(source)

    def accepts(self, source: str) -> bool:
        return refusal(source) is None

    def bids(self, source: str) -> bool:
        return compiled(source).bids

    def run(self, run: Host, code: str, handler: str, payload: bytes) -> None:
        host: Any = _Host(run)
        run.world.reached("P-02", code in host.world.loaded_programs.names())
        self._perform(lambda: self._vm.run(code, handler, payload, host))

    def bid(self, run: Host, code: str, offered: dict[str, Any]) -> tuple[int | None, int | None]:
        host: Any = _Host(run)
        bid: tuple[int | None, int | None] = self._perform(lambda: self._vm.bid(code, offered, host))
        return bid

    @staticmethod
    def _perform(body: Callable[[], Any]) -> Any:
        try:
            return body()
        except HandlerFailure as failure:
            raise Failure(failure.name) from None


class _Meter:
    """A meter of the specification, as the machine of programs reads and writes it."""

    def __init__(self, run: Host) -> None:
        self._meter = run.meter
        self.cycles_limit = run.meter.cycle_limit

    @property
    def cycles_used(self) -> int:
        return self._meter.cycles

    @cycles_used.setter
    def cycles_used(self, cycles: int) -> None:
        self._meter.cycles = cycles

    def charge(self, cycles: int, cells: int = 0) -> None:
        _translated(self._meter.charge)(cycles, cells)


class _Host:
    """A run of the specification, as :class:`~validator.pvm.runtime.host.Host`."""

    def __init__(self, run: Host) -> None:
        world = run.world
        self._run = run
        self.meter = _Meter(run)
        self.terms = SimpleNamespace(
            fee_floor=world.fee_floor, parameters=SimpleNamespace(message_cycles=world.parameters["MESSAGE_CYCLES"])
        )
        if "programs" not in world.loaded:
            world.loaded["programs"] = SizedCache[int](MAX_LOADED_CYCLES)
        self.world = SimpleNamespace(
            actor=world.actors.get,
            balance=lambda address: world.balance.get(address, 0),
            source=world.programs.__getitem__,
            loaded_programs=world.loaded["programs"],
        )

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._run, name)
        return _translated(value) if callable(value) else value

    @property
    def origin(self) -> bytes:
        self._run.world.reached("P-07")
        return self._run.origin

    def schedule_timer(self, request: ScheduleRequest) -> bytes:
        fields = [getattr(request, name) for name in ScheduleRequest.__struct_fields__]
        watch = None if request.watch is None else Watch(*request.watch)
        scheduled: bytes = _translated(self._run.schedule_timer)(Request._make((*fields[:-1], watch)))
        return scheduled


def _translated(call: Callable[..., Any]) -> Callable[..., Any]:
    """A call whose failures are those that the machine of programs knows."""

    def translated(*arguments: Any) -> Any:
        try:
            return call(*arguments)
        except Refusal as refused:
            raise Rejection(refused.name) from None
        except Failure as failure:
            raise OutOfCycles if failure.name == "OutOfCycles" else HandlerFailure(failure.name) from None

    return translated
