"""Draws programs over the whole language, with a liking for what lies at an edge.

Variables have a kind by their first letter (``n`` numbers, ``s`` texts, ``b`` bytes, ``l`` lists, ``d`` dicts, ``x``
anything), which holds mostly: an expression is of the wrong kind now and then, so that every error is met without
every program's ending at its first statement.

Everything is drawn from templates: ``N``, ``S``, ``B``, ``L``, ``D`` and ``X`` stand for an expression of a kind,
``T`` for a test, ``I`` for an index or key, ``n`` and so on between ``<`` and ``>`` for a variable.
"""

# ruff: noqa: E501  # tables, one case a line
from __future__ import annotations

import re
from random import Random

KINDS = "nsbldx"
VARIABLES = {kind: [f"{kind}{i}" for i in range(3 if kind == "x" else 2)] for kind in KINDS}
DEPTH = 3

FIRST = {
    "n": (
        "0 1 2 3 7 8 9 31 32 33 64 255 256 257 1000 0 1 2 3 7 8 -1 -2 -3 2**31 2**60 (2**60-1) (2**61-1) (2**63-1) 2**63 "
        "(2**64-1) 2**64 2**128 2**255 (2**255+2**254) -(2**63) -(2**63+1) 0x7fffffff "
        f"{2**256 - 1} {2**256 - 2} {2**255 - 19}"
    ).split(),
    "s": [
        "''", "'a'", "'ab'", "'abc'", "'k'", "'aaaa'", "' x '", "'A,b,C'", "'12'", "'-7'", "'0f'", "'\\u00e9'",
        "'\\U0001f600'", "'" + "z" * 31 + "'", "'" + "z" * 32 + "'", "'" + "y" * 70 + "'", "str(2**250)", "(chr(233) * 40)", "('e' * 99 + chr(8364))",
    ],
    "b": ["b''", "b'a'", "b'ab'", "b'\\xff'", "b'\\x00\\x01'", "b'\\xc3\\xa9'", "b'" + "q" * 40 + "'", "bytes(33)"],
    "l": [
        "[]", "[1, 2, 3]", "[3, 1, 2, True]", "['b', 'a']", "[[1, 2], [1], []]", "[(2, 'x'), (1, 'y')]", "[0] * 9",
        "[b'a', b'']", "[None, 1]", "[{}, {'a': 1}]", "[(1, 2), (3, 4)]", "[9, 8, 7, 6, 5]", "[{1: 2, 3: 4}]",
    ],
    "d": ["{}", "{'a': 1}", "{'a': 1, 'b': [2]}", "{1: 2, True: 3}", "{b'k': 'v', 0: 0}", "{i: i for i in range(4)}"],
    "x": ["None", "True", "False", "1", "'a'", "[1]", "(1, 2)", "()", "{'k': 1}", "7", "[]"],
}  # fmt: skip

EXPRESSIONS = {
    "N": [
        *["(N + N)", "(N - N)", "(N * N)", "(N // N)", "(<n> % N)", "(N * 1 % N)"] * 3, "(N ** <n>)", "(N ** 2)", "(<n> ** 255)",
        "(N & N)", "(N | N)", "(N ^ N)", "(N << 1)", "(N << 128)", "(N << 256)", "(N >> 3)", "(N >> 256)", "(N >> 257)",
        "(N << N)", "(N >> N)", "-<n>", "+<n>", "~<n>", "-N", "len(L)", "len(X)", "abs(N)", "(N if T else N)", "L[N]",
        "L[<n>]", "<l>[<n>]", "<l>[0]", "<l>[-1]", "<d>[<n>]", "<d>[1]", "<d>['a']", "sum(L)", "int(S)", "int(N)",
        "max(N, N)", "min(L)", "max(L)", "min(N, N, N, N)", "S.find(S)", "L.count(X)", "L.index(X)", "S.count(S)",
        "<n>.bit_length()", "ord(S)", "int.from_bytes(B)", "self.one(N)", "self.height", "self.balance", "self.value",
        "self.lane_price", "self.LIMIT", "self.BIG", "D.get(I, N)", "<d>.get(<s>, 0)", "(T and N)", "(X or N)",
    ],
    "S": [
        "(S + S)", "(S * 2)", "(S * N)", "(<n> * S)", "str(N)", "str(X)", "chr(N)", "chr(300)", "S[N:N]", "S[:<n>]", "S[N]",
        "S.replace(S, S)", "S.strip()", "S.strip(S)", "S.lower()", "S.upper()", "S.join(L)", "S.join(['a', S])", "S.join(S)",
        "B.hex()", "B.decode()", "STANDARD", "(S if T else S)", "max(S, S)",
    ],
    "B": [
        "(B + B)", "S.encode()", "bytes(N)", "bytes(L)", "bytes([1, 2, N])", "keccak256(B)", "B[N:N]", "B[1:]", "B.strip()",
        "bytes.fromhex(S)", "<n>.to_bytes(8)", "<n>.to_bytes(N)", "self.sender", "self.address", "self.deployer",
        "B.replace(B, B)", "b','.join([B, B])", "bytes(B)",
    ],
    "L": [
        "[X, X]", "[X]", "[N, N, N]", "(L + L)", "(L * 2)", "(L * <n>)", "list(X)", "list(D)", "list()", "sorted(L)",
        "sorted(L, T)", "sorted([N, N, N])", "reversed(L)", "reversed(S)", "L[N:N]", "<l>[:2]", "R", "enumerate(L)",
        "enumerate(X, N)", "zip(L, S)", "zip(L, D, B)", "D.keys()", "D.values()", "D.items()", "sorted(D.items())",
        "S.split(S)", "S.split(',')", "L.copy()", "tuple(L)", "(X, X)", "(X,)", "[[X], L]", "sorted([(N, S), (N, S)])",
        "[<v> for v in Q]", "[X for v in Q]", "[(v, N) for v in Q if T]", "[<v> for v in Q if T]", "[N for v in R]",
        "[[w for w in Q] for v in Q]", "[v for v, w in Q]", "[X for v, w in D.items()]", "[v for v in [w for w in Q if T]]",
        "self.NAMES", "[self.one(v) for v in R]", "[v + N for v in R if v < N < 7]",
    ],
    "D": [
        "{I: X}", "{'a': X, 'b': X}", "{S: N, S: X}", "{I: X, I: X}", "dict(D)", "dict(X)", "dict(zip(L, L))", "dict()",
        "{v: X for v in Q}", "{v: N for v in R}", "{S: v for v in L}", "{v: w for v, w in D.items()}", "D.copy()",
        "{b'x': X}", "{N: v for v in Q if T}", "{1: X, True: X, 'k': X}",
    ],
    "X": [*["<x>"] * 8, *"NSBLDT", "None", "True", "payload", "self.two(X, L)", "D[I]", "L[I]", "X[I]", "D.get(I)", "D.pop(I, X)",
          "(X if T else X)", "(X and X)", "(X or X)", "(X + X)", "(X * X)", "(X - X)", "(<x> % X)", "abs(X)", "(not X)",
          "self.get('k')", "self.get(S, X)", "min(X, X)", "sorted(X)", "X[N:X]", "-X"],
    "T": [
        *["N < N", "N <= N", "N == N", "N != N", "N > N", "N >= N"] * 2, "X == X", "X != X", "X < X", "X >= X", "X in X",
        "X in L", "X not in L", "I in D", "I not in D", "S in S", "B in B", "N in B", "S == S", "S < S", "B == B", "L == L",
        "L < L", "L >= L", "D == D", "X == 'a'", "'" + "q" * 32 + "' == X", "X == None", "((X) is None)", "((X) is not None)",
        "X == 3", "X != True", "N < N < N", "N <= N == N != N", "X < N < X", "0 <= N < 10", "S <= S < 'b'", "(not X)", "(not T)",
        "(T and T)", "(T or T)", "any(L)", "all(L)", "bool(X)", "S.startswith(S)", "S.endswith(S)", "X", "N", "(1 < 2) == T",
    ],
    "I": ["0", "-1", "1", "'a'", "'b'", "b'k'", "True", "<n>", "<n>", "<s>", "<b>", "N", "S", "X", "None", "()", "2**60"],
    "R": ["range(3)", "range(N)", "range(<n>, 4)", "range(N, N)", "range(N, N, 2)", "range(5, N, -1)", "range(0, 9, <n>)"],
    "Q": ["L", "L", "R", "R", "D", "S", "B", "X"],
}  # fmt: skip

ASSIGNED = ["n=N", "n=N", "s=S", "b=B", "l=L", "l=L", "d=D", "x=X", "x=X", "x=L"]
STATEMENTS = [
    *[f"<{kind}> = {value}" for kind, value in (pair.split("=") for pair in ASSIGNED)] * 3,
    *[f"<n> {operator}= N" for operator in ("+", "+", "-", "*", "//", "%", "**", "<<", ">>", "&", "|", "^")],
    "<x>: int = X", "<l> += L", "<l> += X", "<l> *= <n>", "<s> += S", "<b> += B", "<x> += X", "<x> *= X", "<x> -= X",
    "<l>[N] += N", "<d>[I] += X", "<d>['a'] += 1", "<l>[0] -= N", "<l>[I] *= X", "X[I] += X", "self.two(X, L)[I] += N",
    "<l>[N] = X", "<l>[<n>] = N", "<d>[I] = X", "<d>['a'] = X", "<d>[<s>] = X", "<x>[I] = X", "X[I] = X", "<d>[<n>] = N",
    "<l>[0][I] = X", "<l>.append(X)", "<l>.append(<x>)", "<x>.append(X)", "<l>.extend(X)", "<l>.insert(N, X)", "<l>.pop()",
    "<l>.pop(I)", "<l>.remove(X)", "<l>.reverse()", "<l>.sort()", "<x>.sort()", "<l>.clear()", "<d>.clear()", "<d>.update(D)",
    "<d>.setdefault(I, X)", "<x> = <d>.pop(I)", "<x> = <d>.pop(I, X)", "<x> = X.pop()", "(<x>, <n>) = X", "<x>, = L",
    "<n>, <n> = <n>, <n>", "<x>, <x> = X, X", "[<x>, <n>] = L", "<x>, <x> = D", "() = X", "<x>, <n> = S", "del <l>[I]",
    "del <d>[I]", "del X[I]", "del <l>[0], <l>[N]", "assert T", "assert T, X", "assert X, S", "<l>.append(<l>)",
    "<d>['me'] = <d>", "<l> = [<l>, <l>]", "<x> = (<l>, <d>)", "'''A remark.'''", "pass", "<x> = self.one(N)",
    "<x> = self.two(X, L)", "self.one(X)", "<x> = self.deep(N)", "self.one(self.one(N))",
]  # fmt: skip
HOST = [
    "self.set('k', X)", "self.set(S, X)", "self.set('k', D)", "<x> = self.get('k')", "<x> = self.get(S, X)", "self.delete('k')",
    "self.emit(S, X)", "self.emit('e', N)", "self.emit('e')", "self.emit('e', data=B)", "self.burn(50)", "self.burn(N)",
    "self.transfer(self.deployer, N)", "self.transfer(B, 1)", "<b> = self.schedule(self.height + 5, X)",
    "<b> = self.schedule(N, payload=X, tier=FAST)", "self.schedule(3, tier=S)", "self.cancel(<b>)", "<b> = self.request_job(X, 1, 'handle')", "self.request_job(X, N, S)", "self.consume_result(<b>)", "self.cancel(X)", "<x> = self.pending(<b>)", "if self.pending(<b>): self.cancel(<b>)", "<x> = self.pending(X)",
    "self.extend(<b>, N)", "self.send(self.address, 'h', X, cycles=2000, cells=5)", "self.send(self.address, S, cycles=N)",
    "self.schedule(3, fee_payer=self.sender, payer_cap=N, gas_limit=N)", "self.schedule(3, handler=S, expires_at=X)",
    "self.schedule(height=4, max_fee_per_cycle=N, max_priority_fee_per_cycle=N)",
]  # fmt: skip
TASKS = [
    "<x> = self.spawn(self.work(N, L))", "<l>.append(self.spawn(self.rest(X)))", "<x> = await self.work(N, L)",
    "<x> = await self.spawn(self.rest(X))", "await self.pause()", "<x> = await <x>", "<x> = await <l>.pop()", "await (X if T else <x>)",
    "<l> = [self.spawn(self.rest(v)) for v in range(4)]", "<x> = await self.rest(await self.rest(X))",
    "<n> = (await self.rest(N)) + N", "<x> = [await self.rest(X), await <x>]", "<x>[I] = await self.rest(X)",
]  # fmt: skip
HEADS = [
    "if T:", "if X:", "if T:", "for <n> in R:", "for <n> in R:", "for <x> in X:", "for <x> in L:", "for <s> in S:", "for <x> in D:",
    "for <n>, <x> in enumerate(L):", "for <s>, <x> in D.items():", "for <x>, <x> in X:", "for <x>, in L:", "while T:", "while <n> < N:",
]  # fmt: skip
ENDS = ["break", "continue", "pass", "<n> += 1", "<n> -= 1", "<l>.pop()", "break", "break"]
PLACES = re.compile(r"<([a-z])>|(?<![A-Za-z0-9_'.])([NSBLDXTIRQ])(?![A-Za-z0-9_'])")


class Draw:
    """Draws one program."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.is_async = False
        self.depth = 0
        self.loops = 0

    def chance(self, percent: int) -> bool:
        return self.random.randrange(100) < percent

    def filled(self, template: str) -> str:
        """A template with everything drawn that it leaves open."""
        return PLACES.sub(self.drawn, template)

    def drawn(self, place: re.Match[str]) -> str:
        if place[1]:
            return self.variable(place[1])
        made = self.expression(place[2])
        is_holder = place.string[place.end() : place.end() + 1] in (".", "[")
        return f"({made})" if is_holder and not made.isidentifier() else made

    def variable(self, kind: str) -> str:
        return kind if kind in "vw" else self.random.choice(VARIABLES[kind])

    def expression(self, kind: str) -> str:
        leaf = kind.lower()
        if leaf in KINDS and self.chance(2):
            kind = "X"
        if leaf in KINDS and (self.depth >= DEPTH or self.chance(30 + 15 * self.depth)):
            return self.variable(leaf) if self.chance(65) else self.random.choice(FIRST[leaf])
        if self.depth > DEPTH:
            return {"T": "x0", "I": "n0", "R": "range(3)", "Q": "l0"}[kind]
        self.depth += 1
        made = self.filled(self.random.choice(EXPRESSIONS[kind]))
        self.depth -= 1
        return made

    def program(self) -> str:
        lines = ["class Drawn(Actor):", "    LIMIT = 5", "    NAMES = ('a', 'b', 3, (True, None))", "    BIG = -2", ""]
        lines += self.method("handle", "payload", self.random.randint(1, 7), is_async=self.chance(35))
        lines += self.method("one", "n0", self.random.randint(1, 3))
        lines += self.method("two", "x0 l0", self.random.randint(1, 3))
        lines += self.method("deep", "n0", 1, "return self.deep(n0 - 1) + 1 if n0 else 0")
        lines += self.method("work", "n0 l0", self.random.randint(1, 4), is_async=True)
        lines += self.method("rest", "x0", self.random.randint(1, 2), is_async=True)
        return "\n".join(lines) + "\n"

    def method(self, name: str, parameters: str, size: int, end: str = "return X", is_async: bool = False) -> list[str]:
        """One method; a variable has no value at first now and then."""
        self.is_async, self.loops = is_async, 0
        own = [*parameters.split(), "payload"]
        first, never = list[str](), list[str]()
        for kind, names in VARIABLES.items():
            for each in names:
                if each not in own:
                    has_value = self.chance(95 if name == "handle" else 80)
                    (first if has_value else never).append(f"{each} = {self.random.choice(FIRST[kind])}")
        if name != "handle":
            never.append("payload = 1")
        self.random.shuffle(first)
        body = [*first, *self.block(size, 2), self.filled(end)]
        body += ["if x0:", *("    " + line for line in never)] if never else []
        head = f"    {'async ' if is_async else ''}def {name}(self, {', '.join(parameters.split())}):"
        return [head, *("        " + line for line in body), ""]

    def block(self, size: int, depth: int) -> list[str]:
        lines: list[str] = []
        for _ in range(size):
            lines += self.compound(depth - 1) if depth and self.chance(25) else [self.simple()]
        return lines

    def simple(self) -> str:
        if self.chance(1):
            return self.filled(self.random.choice(["raise ActorError(X)", "raise ActorError()", "return X"]))
        if self.loops and self.chance(6):
            return self.filled(self.random.choice(ENDS))
        if self.is_async and self.chance(25):
            return self.filled(self.random.choice(TASKS))
        return self.filled(self.random.choice(HOST if self.chance(10) else STATEMENTS))

    def compound(self, depth: int) -> list[str]:
        head = self.filled(self.random.choice(HEADS))
        is_if = head.startswith("if")
        self.loops += not is_if
        lines = [head, *self.indented(depth)]
        if head.startswith("while"):
            lines.append("    " + self.filled(self.random.choice(ENDS)))
        self.loops -= not is_if
        if is_if and self.chance(30):
            lines += [self.filled("elif T:"), *self.indented(depth)]
        if is_if and self.chance(40):
            lines += ["else:", *self.indented(depth)]
        return lines

    def indented(self, depth: int) -> list[str]:
        return ["    " + line for line in self.block(self.random.randint(1, 3), depth)]


def draw(seed: int) -> str:
    """The program of a seed."""
    return Draw(seed).program()
