"""The Python actor VM: programs checked, compiled, kept by their hash, and run (SPEC §2).

:class:`Vm` is what the rest of the validator sees, so that another engine could stand here. This one runs programs on
CPython itself, in the validator's own process. **That is no security boundary against the host**: what keeps a program
in is the check of its text (:mod:`validator.pvm.subset`), which knows no attribute, no import and no name but its own,
and the operations that everything else goes through. A mistake there is a hole; who runs programs of strangers puts a
process, a container or a machine around the validator, as ``docs/actors.md`` says.

An error of the program ends its handler and nothing else. An error of the host (no memory, a bug of ours) is none of
the program's: it goes through, and stops the validator loudly.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from functools import lru_cache
from types import CodeType, TracebackType
from typing import TYPE_CHECKING, Any, Final, NoReturn, Protocol

from validator.errors import OutOfCycles
from validator.host import HandlerContext
from validator.pvm.api import GAS_BID, HOST_CALLS, HOST_READS
from validator.pvm.collector import YoungAlone
from validator.pvm.compiler import FILE_NAME, compile_program
from validator.pvm.hostcalls import HostCalls
from validator.pvm.operations import ActorFault, Value, ValueMethods, fault
from validator.pvm.subset import Program, parse
from validator.pvm.tasks import TaskQueue
from validator.pvm.values import unpack
from validator.records import python_code
from validator.types import PRICE_LIMIT

if TYPE_CHECKING:
    from validator.world import World

MAX_COMPILED: Final = 2_048
"""Programs whose code a process keeps: some 20 to 60 kB each, 200 of the densest that a default lane can deploy. What
is pushed out is compiled anew when it is called, for which nobody pays."""
MAX_LOADED: Final = 1_024
"""Programs that a VM keeps ready to run."""
BID_FIELDS: Final = ("max_fee_per_cycle", "max_priority_fee_per_cycle")
_PROGRAMS_OWN: Final = (TypeError, ValueError, LookupError, ZeroDivisionError, NameError, OverflowError)
"""What Python raises for a program's mistakes, where its own code stands at the end of the traceback."""


class Vm(Protocol):
    """Runs programs; which one, the actor's code says by the program's hash."""

    def run(self, code: str, handler: str, payload: bytes, context: HandlerContext) -> None:
        """Run a handler. Raises :class:`~validator.errors.HandlerFailure` where it fails."""

    def bid(self, code: str, offered: dict[str, int], context: HandlerContext) -> tuple[int, int]:
        """Ask a program for its bid, per cycle: at most so much, and the tip. Raises as :meth:`run` does."""


class _Named:
    """A program's text, known by its hash alone."""

    __slots__ = ("code", "source")

    def __init__(self, code: str, source: str) -> None:
        self.code = code
        self.source = source

    def __hash__(self) -> int:
        return hash(self.code)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Named) and self.code == other.code


@lru_cache(MAX_COMPILED)
def _compiled(named: _Named) -> tuple[Program, CodeType]:
    with YoungAlone():
        program = parse(named.source)
        code = compile_program(program)
    program.forget_bodies()
    return program, code


def compiled(source: str) -> tuple[Program, CodeType]:
    """A program, without its methods' bodies, and its code. Raises :class:`~validator.pvm.subset.ProgramError`."""
    code, _ = python_code(source)
    return _compiled(_Named(code, source))


class PythonVm:
    """Programs of one validator, ready to run."""

    def __init__(self) -> None:
        self._loaded: OrderedDict[str, LoadedProgram] = OrderedDict()

    def run(self, code: str, handler: str, payload: bytes, context: HandlerContext) -> None:
        self._load(code, context.world).run_handler(handler, payload, context)

    def bid(self, code: str, offered: dict[str, int], context: HandlerContext) -> tuple[int, int]:
        return self._load(code, context.world).bid(offered, context)

    def _load(self, code: str, world: World) -> LoadedProgram:
        loaded = self._loaded.get(code)
        if loaded is None:
            loaded = self._loaded[code] = LoadedProgram(*_compiled(_Named(code, world.source(code))))
            if len(self._loaded) > MAX_LOADED:
                self._loaded.popitem(last=False)
        else:
            self._loaded.move_to_end(code)
        return loaded


class LoadedProgram:
    """One program with its meter, its operations and its host. It runs one handler at a time."""

    operations_class: type[ValueMethods] = ValueMethods

    def __init__(self, program: Program, code: CodeType) -> None:
        self.program = program
        namespace: dict[str, Any] = {"__builtins__": {}}
        exec(code, namespace)
        make: Callable[[], tuple[Any, ...]] = namespace["_make"]
        self._charge, self._enter, self._remaining, self._functions = make()
        self.operations = self.operations_class(self._charge)
        self._host = HostCalls()
        self._tasks: TaskQueue | None = None
        namespace.update(self._namespace())

    def _namespace(self) -> dict[str, Any]:
        """What compiled code calls."""
        operations = self.operations
        names: dict[str, Any] = {
            "_int": int,
            "_str": str,
            "_list": list,
            "_dict": dict,
            "_len": len,
            "_abs": abs,
            "_range": range,
        }
        for name in dir(operations):
            if not name.startswith("_"):
                names[f"_{name}"] = getattr(operations, name)
        for name in HOST_CALLS:
            names[f"_h_{name}"] = self._through_host(getattr(self._host, name))
        for name in HOST_READS:
            names[f"_r_{name}"] = getattr(self._host, f"read_{name}")
        names |= {"_out": self._out, "_too_deep": self._too_deep, "_pay": self._pay}
        names |= {"_spawn": self._spawn, "_pause": self._pause, "_wait": self._wait}
        return names

    # --- running ------------------------------------------------------------------------------------------------------

    def run_handler(self, handler: str, payload: bytes, context: HandlerContext) -> None:
        """Run one handler to the end of its last task."""
        method = self.program.methods.get(handler)
        if method is None or not method.is_handler:
            fault("UnknownHandler")

        def body() -> None:
            value = unpack(payload, self.operations.charge)
            if method.is_async:
                self._tasks = TaskQueue()
                self._tasks.run(self._functions[handler](0, value))
            else:
                self._functions[handler](0, value)

        self._metered(context, body)

    def bid(self, offered: dict[str, int], context: HandlerContext) -> tuple[int, int]:
        """The program's bid for a timer."""
        answer: list[Value] = []
        self._metered(context, lambda: answer.append(self._functions[GAS_BID](0, dict(offered))))
        return checked_bid(answer[0])

    def _metered(self, context: HandlerContext, body: Callable[[], None]) -> None:
        """Run something at the expense of a handler's meter."""
        assert self._host.context is None, "no handler runs inside another one"
        self._host.context = context
        meter = context.meter
        self._enter(meter.cycles_limit - meter.cycles_used)
        try:
            with YoungAlone():
                body()
        except _PROGRAMS_OWN as error:
            if _raised_by_host(error.__traceback__):
                raise
            raise ActorFault(_name_of(error)) from None
        finally:
            meter.cycles_used = min(meter.cycles_limit, meter.cycles_limit - self._remaining())
            self._host.context = None
            self._tasks = None

    def _through_host(self, call: Callable[..., Value]) -> Callable[..., Value]:
        """A host call: the meter is the host's while it lasts."""
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

    def _too_deep(self) -> NoReturn:
        fault("RecursionError")

    def _pay(self, cycles: int, _piece: int | None) -> bool:
        self._charge(cycles)
        return True

    def _spawn(self, work: Any) -> Value:
        assert self._tasks is not None, "only async methods start tasks"
        return self._tasks.start(work)

    def _pause(self) -> Any:
        assert self._tasks is not None, "only async methods pause"
        return self._tasks.pause()

    def _wait(self, task: Value) -> Any:
        assert self._tasks is not None, "only async methods wait"
        return self._tasks.wait(task)


def checked_bid(answer: Value) -> tuple[int, int]:
    """A bid's two figures. Ends the query as ``BidInvalid`` where it is no bid."""
    if answer.__class__ is not dict or set(answer) != set(BID_FIELDS):
        fault("BidInvalid")
    figures = [answer[name] for name in BID_FIELDS]
    if any(figure.__class__ is not int or not 0 <= figure < PRICE_LIMIT for figure in figures):
        fault("BidInvalid")
    return figures[0], figures[1]


def _raised_by_host(traceback: TracebackType | None) -> bool:
    """Whether an error came from elsewhere than a program's own code."""
    last = traceback
    while last is not None and last.tb_next is not None:
        last = last.tb_next
    return last is None or last.tb_frame.f_code.co_filename != FILE_NAME


def _name_of(error: Exception) -> str:
    """Python's name for an error; a variable without a value has one name, wherever it is looked for."""
    return "NameError" if isinstance(error, NameError) else type(error).__name__
