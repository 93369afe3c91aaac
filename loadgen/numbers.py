"""Allocation of the numbers of a plan's Locust users: each number is held by at most one process at a time."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from typing import NamedTuple, Protocol


class Claim(NamedTuple):
    """A user's number, held by one process until it is given back."""

    number: int
    is_first: bool
    """Whether no process held the number before."""


class Numbers(Protocol):
    """A process's source of numbers for its users."""

    def take(self) -> Claim:
        """The next number; waits until one is free."""

    def give_back(self, number: int) -> None:
        """Return the number of a stopped user."""


class OwnNumbers:
    """The numbers of a process that shares its users with no other process."""

    def __init__(self, numbers: Collection[int]) -> None:
        self._first = deque(numbers)
        self._again: deque[int] = deque()

    def take(self) -> Claim:
        return Claim(self._first.popleft(), True) if self._first else Claim(self._again.popleft(), False)

    def give_back(self, number: int) -> None:
        self._again.append(number)


class NumberPool:
    """The numbers of a plan's users, each held by at most one worker. Claims wait until a number is free."""

    def __init__(self, count: int) -> None:
        self._free = deque(Claim(number, True) for number in range(count))
        self._holders: dict[int, str] = {}
        self._waiting: deque[str] = deque()

    @property
    def holders(self) -> set[str]:
        """The workers that hold or wait for a number."""
        return {*self._holders.values(), *self._waiting}

    def claim(self, worker: str) -> None:
        self._waiting.append(worker)

    def release(self, worker: str, number: int) -> None:
        """Free a number that a worker returns. Nothing happens if that worker does not hold the number."""
        if self._holders.get(number) == worker:
            del self._holders[number]
            self._free.append(Claim(number, False))

    def lose(self, worker: str) -> None:
        """Free all numbers of a lost worker, and drop its waiting claims."""
        self._waiting = deque(other for other in self._waiting if other != worker)
        for number in [number for number, holder in self._holders.items() if holder == worker]:
            self.release(worker, number)

    def granted(self) -> list[tuple[str, Claim]]:
        """Give free numbers to waiting workers, in the order of their claims. Returns each worker with its number."""
        answers = []
        while self._free and self._waiting:
            worker, claim = self._waiting.popleft(), self._free.popleft()
            self._holders[claim.number] = worker
            answers.append((worker, claim))
        return answers
