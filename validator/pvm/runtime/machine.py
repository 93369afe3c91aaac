"""The Python actor VM: programs are checked, compiled, cached by their hash, and run (SPEC §2).

:class:`Vm` is the interface for the rest of the validator, so the VM can be replaced. :class:`PythonVm` runs programs
on CPython itself, in the validator's process. **That is no security boundary against the host.** Programs are confined
by the check of their text (:mod:`validator.pvm.language.subset`), which allows only known names and attributes and no
import, and by the operations that everything else goes through. A mistake there is a hole. An operator who runs
untrusted programs isolates the validator in a process, a container or a machine (``docs/actors.md``).

An error of the program only ends its handler. An error of the host (no memory, a bug of the validator) is not the
program's: it propagates and stops the validator.
"""

from __future__ import annotations

from collections.abc import Callable
from types import CellType, CodeType, FunctionType, TracebackType
from typing import Any, Final, NamedTuple, NoReturn, Protocol

from validator.primitives.cache import SizedCache
from validator.primitives.errors import OutOfCycles
from validator.primitives.limits import INTEGER_BITS, MAX_CALL_DEPTH
from validator.primitives.types import PRICE_LIMIT
from validator.pvm.compiler.compiler import FILE_NAME
from validator.pvm.compiler.programs import CompiledProgram, Methods, compiled_as
from validator.pvm.compiler.weights import TASK_LEVEL
from validator.pvm.garbage_collection import YoungAlone, note_cycles
from validator.pvm.host_python import require_fit_python
from validator.pvm.language.api import GAS_BID, HOST_CALLS, HOST_READS
from validator.pvm.runtime.builtins import Builtins
from validator.pvm.runtime.host import Host
from validator.pvm.runtime.hostcalls import HostCalls
from validator.pvm.runtime.methods import SequenceMethods, TextMethods
from validator.pvm.runtime.operations import ActorError, ActorFault, Value, Work, fault, shown
from validator.pvm.runtime.operators import Arithmetic, Comparisons, Elements
from validator.pvm.runtime.tasks import TaskQueue
from validator.pvm.runtime.values import unpack

MAX_LOADED_BYTES: Final = 24 << 20
"""Maximum total size, as marshalled code, of the loaded programs that a VM keeps. Loaded, they take a few times as much
memory. All programs that a block need not pay for again (:data:`~validator.primitives.limits.MAX_LOADED_CYCLES`) fit,
since the densest ones have 30 bytes per cycle."""
BID_FIELDS: Final = ("max_fee_per_cycle", "max_priority_fee_per_cycle")
CELL_FIELDS: Final = ("max_fee_per_cell", "max_priority_fee_per_cell")
"""Further fields that a bid may have. They have no effect, since cells have no lane fee (SPEC §9)."""
BidFigures = tuple[int | None, int | None]
"""A bid for a timer: the max fee and the tip, both per cycle. The default agent sets a field that is ``None``."""
_PROGRAMS_OWN: Final = (TypeError, ValueError, LookupError, ZeroDivisionError, NameError, OverflowError)
"""Python's errors that count as the program's mistakes, if the traceback ends in the program's code."""


class Vm(Protocol):
    """The interface of a virtual machine for Python actors. The actor's ``code`` names the program by its hash."""

    def run(self, code: str, handler: str, payload: bytes, context: Host) -> None:
        """Run a handler. Raises :class:`~validator.primitives.errors.HandlerFailure` if it fails."""

    def bid(self, code: str, offered: dict[str, int | bytes], context: Host) -> BidFigures:
        """Ask a program for its bid. Raises as :meth:`run` does."""


class PythonVm:
    """The VM that runs programs on CPython itself. It keeps the last used ones loaded."""

    def __init__(self) -> None:
        self._runtime = Runtime()
        self._loaded: SizedCache[LoadedProgram] = SizedCache(MAX_LOADED_BYTES)

    def run(self, code: str, handler: str, payload: bytes, context: Host) -> None:
        self._load(code, context).run_handler(handler, payload, context)

    def bid(self, code: str, offered: dict[str, int | bytes], context: Host) -> BidFigures:
        return self._load(code, context).bid(offered, context)

    def _load(self, code: str, context: Host) -> LoadedProgram:
        """Load a program, and charge its loading price if this block has not paid it yet."""
        pay_for_loading(code, context)
        loaded = self._loaded.get(code)
        if loaded is None:
            program = _compiled_in(code, context)
            loaded = LoadedProgram(*program.load(), self._runtime)
            self._loaded.put(code, loaded, program.size)
        return loaded


def pay_for_loading(code: str, context: Host) -> None:
    """Charge the loading price of a program, unless it is among the last programs that this block paid for.

    The charge does not depend on whether the program must really be loaded.
    """
    paid = context.world.loaded_programs
    if paid.get(code) is None:
        price = _compiled_in(code, context).load_cycles
        context.meter.charge(price)
        paid.put(code, price, price)


def _compiled_in(code: str, context: Host) -> CompiledProgram:
    return compiled_as(code, lambda: context.world.source(code))


class Meter(NamedTuple):
    """The counter of remaining cycles of a runtime, which compiled code decrements directly."""

    charge: Callable[[int], None]
    enter: Callable[[int], None]
    """Function that sets the remaining cycles."""
    remaining: Callable[[], int]
    left: CellType
    """The closure variable with the remaining cycles, for compiled code."""


def new_meter() -> Meter:
    left = 0

    def charge(cycles: int) -> None:
        nonlocal left
        left -= cycles
        if left < 0:
            raise OutOfCycles

    def enter(cycles: int) -> None:
        nonlocal left
        left = cycles

    def remaining() -> int:
        return left

    assert charge.__closure__ is not None
    (cell,) = charge.__closure__
    return Meter(charge, enter, remaining, cell)


class Runtime:
    """The environment in which loaded programs run: a meter, the operations and the host. It runs one handler at a
    time.

    Raises :class:`~validator.pvm.host_python.UnfitPython` if this Python would run programs differently than others.
    """

    builtins_class: type[Builtins] = Builtins

    def __init__(self) -> None:
        require_fit_python()
        self._charge, self._enter, self._remaining, self._left = new_meter()
        self.work = Work(self._charge)
        self._host = HostCalls()
        self.tasks: TaskQueue | None = None
        self._names = self._namespace()

    def functions(self, code: CodeType) -> dict[str, Callable[..., Any]]:
        """A compiled program's methods."""
        made: dict[str, Callable[..., Any]] = FunctionType(code, self._names, closure=(self._left,))()
        return made

    def _namespace(self) -> dict[str, Any]:
        """The global names of compiled code: operations, host calls and a few of Python's functions."""
        elements = Elements(self.work)
        comparisons, arithmetic = Comparisons(self.work, elements), Arithmetic(self.work, elements)
        operations = (
            elements,
            comparisons,
            arithmetic,
            self.builtins_class(self.work, elements, comparisons),
            SequenceMethods(self.work, elements, comparisons, arithmetic),
            TextMethods(self.work, elements),
        )
        names: dict[str, Any] = {
            "__builtins__": {},
            "_int": int,
            "_str": str,
            "_list": list,
            "_dict": dict,
            "_len": len,
            "_abs": abs,
            "_range": range,
        }
        for topic in operations:
            names |= {f"_{name}": getattr(topic, name) for name in dir(topic) if not name.startswith("_")}
        for name in HOST_CALLS:
            names[f"_h_{name}"] = self._through_host(getattr(self._host, name))
        for name in HOST_READS:
            names[f"_r_{name}"] = getattr(self._host, f"read_{name}")
        names |= {"_out": self._out, "_fail": self._fail, "_overflow": self._overflow, "_too_deep": self._too_deep}
        names |= {"_pay": self._pay, "_spawn": self._spawn, "_pause": self._pause, "_wait": self._wait}
        return names

    # --- running ------------------------------------------------------------------------------------------------------

    def metered(self, context: Host, body: Callable[[], None]) -> None:
        """Run a program's function, and charge its cycles to the meter of the handler's host.

        A Python error that is the program's mistake is raised as :class:`ActorFault`.
        """
        assert self._host.context is None, "no handler runs inside another one"
        self._host.context = context
        meter = context.meter
        before = meter.cycles_used
        self._enter(meter.cycles_limit - before)
        try:
            with YoungAlone():
                body()
        except _PROGRAMS_OWN as error:
            if _raised_by_host(error.__traceback__):
                raise
            raise ActorFault(_name_of(error), str(error)) from None
        finally:
            meter.cycles_used = min(meter.cycles_limit, meter.cycles_limit - self._remaining())
            note_cycles(meter.cycles_used - before)
            self._host.context = None
            self.tasks = None

    def _through_host(self, call: Callable[..., Value]) -> Callable[..., Value]:
        """Wrap a host call: the host's meter counts the cycles during the call, and the runtime's meter otherwise."""
        host = self._host

        def through(*arguments: Value, **named: Value) -> Value:
            assert host.context is not None, "a handler runs"
            meter = host.context.meter
            meter.cycles_used = meter.cycles_limit - self._remaining()
            try:
                return call(*arguments, **named)
            finally:
                self._enter(meter.cycles_limit - meter.cycles_used)

        return through

    # --- what compiled code calls -------------------------------------------------------------------------------------

    def _out(self) -> NoReturn:
        raise OutOfCycles

    def _fail(self, text: Value = "") -> NoReturn:
        raise ActorError(text)

    def _overflow(self) -> NoReturn:
        fault("IntegerTooLarge", f"more than {INTEGER_BITS} bits")

    def _too_deep(self) -> NoReturn:
        fault("RecursionError", f"more than {MAX_CALL_DEPTH} calls inside each other")

    def _pay(self, cycles: int, _piece: int | None) -> bool:
        self._charge(cycles)
        return True

    def _spawn(self, work: Any) -> Value:
        assert self.tasks is not None, "only async methods start tasks"
        return self.tasks.start(work)

    def _pause(self, depth: int) -> Any:
        assert self.tasks is not None, "only async methods pause"
        self._pay_for_levels(depth)
        return self.tasks.pause()

    def _wait(self, depth: int, task: Value) -> Any:
        assert self.tasks is not None, "only async methods wait"
        self._pay_for_levels(depth)
        return self.tasks.wait(task)

    def _pay_for_levels(self, depth: int) -> None:
        """Charge for the ``depth`` async methods that called the one in which a task gives up its turn."""
        if depth:
            self.work.charge(TASK_LEVEL * depth)


class LoadedProgram:
    """One program, ready to run."""

    def __init__(self, methods: Methods, code: CodeType, runtime: Runtime | None = None) -> None:
        self.runtime = Runtime() if runtime is None else runtime
        self.functions = self.runtime.functions(code)
        self._methods = methods

    def run_handler(self, handler: str, payload: bytes, context: Host) -> None:
        """Run one handler to the end of its last task."""
        is_handler, is_async = self._methods.get(handler, (False, False))
        if not is_handler:
            fault("UnknownHandler", f"no handler {shown(handler)}")
        runtime, function = self.runtime, self.functions[handler]

        def body() -> None:
            value = unpack(payload, runtime.work.charge)
            if is_async:
                runtime.tasks = TaskQueue()
                runtime.tasks.run(function(0, value))
            else:
                function(0, value)

        runtime.metered(context, body)

    def bid(self, offered: dict[str, int | bytes], context: Host) -> BidFigures:
        """The program's bid for a timer."""
        answer: list[Value] = []
        self.runtime.metered(context, lambda: answer.append(self.functions[GAS_BID](0, dict(offered))))
        return checked_bid(answer[0])


def checked_bid(answer: Value) -> BidFigures:
    """Check the answer of ``get_gas_bid``, and return the bid.

    The query fails as ``BidInvalid`` if the answer is not a bid, or a field is out of range.
    """
    if answer.__class__ is not dict or not set(answer) <= {*BID_FIELDS, *CELL_FIELDS}:
        fault("BidInvalid", f"expected a dict with {' and '.join(BID_FIELDS)}")
    if any(figure.__class__ is not int or not 0 <= figure < PRICE_LIMIT for figure in answer.values()):
        fault("BidInvalid", "a figure is no integer from 0 to below 2**96")
    return answer.get(BID_FIELDS[0]), answer.get(BID_FIELDS[1])


def _raised_by_host(traceback: TracebackType | None) -> bool:
    """Whether an error comes from code other than a program's."""
    last = traceback
    while last is not None and last.tb_next is not None:
        last = last.tb_next
    return last is None or last.tb_frame.f_code.co_filename != FILE_NAME


def _name_of(error: Exception) -> str:
    """The name of an error for receipts. Every kind of :class:`NameError` has the same name."""
    return "NameError" if isinstance(error, NameError) else type(error).__name__
