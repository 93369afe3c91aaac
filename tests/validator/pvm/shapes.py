"""Shapes of programs: what a handler holds in variables, and what it does with it in an endless loop.

A shape is drawn from a seeded source and changed bit by bit, so that a search can climb from one to the next. Everything
comes from templates; ``<n>`` stands for an expression of a kind: ``n`` small and ``w`` wide integers, ``t`` truth values, ``o`` None, ``s`` ASCII texts, ``u``
other texts, ``b`` bytes, ``l`` lists of scalars, ``m`` lists of texts, ``k`` lists of lists, tuples or dicts, ``p``
tuples, ``d`` dicts by texts, ``e`` dicts by numbers, ``a`` any of these.
"""

# ruff: noqa: E501  # tables, one case a line
from __future__ import annotations

import re
from collections.abc import Iterator
from random import Random
from typing import Final, NamedTuple

from tests.validator.pvm.running import program
from validator.primitives.limits import MAX_SOURCE_BYTES

LINE_AROUND: Final = 21
"""Characters of a line besides what it says: where blocks are deepest."""
KINDS: Final = "nwtosublmkpde"
DEPTH: Final = 3
SIZES: Final = (0, 1, 2, 3, 8, 31, 32, 33, 99, 100, 101, 255, 256, 257, 1_000, 3_000, 10_000, 30_000)
MAX_COPIES: Final = 2_000
MANY: Final = (2, 3, 8, 25, 70)

FIRST: Final[dict[str, tuple[str, ...]]] = {
    "n": ("<n>", "-<n>", "2 ** 59", "5"),
    "w": ("2 ** 255 - <n> - 1", "2 ** 127 + <n>", "2 ** 128 - 3", "-(2 ** 255)", "2 ** 64 + <n>"),
    "t": ("True", "False"),
    "o": ("None",),
    "s": (
        "'a' * <n>", "'a' * (<n> // 2) + 'b' + 'a' * (<n> // 2)", "'a' * <n> + 'b'", "'b' + 'a' * <n>", "'ab' * <n>", "'ab,' * <n>",
        "' ' * <n>", "'9' * min(<n> + 1, 77)", "'0f' * <n>", "'A' * <n>",
    ),
    "u": (
        "chr(300) * <n>", "chr(70000) * <n>", "('a' + chr(300)) * <n>", "chr(300) * (<n> // 2) + 'b' + chr(300) * (<n> // 2)",
        "'a' * <n> + chr(300)", "(chr(20000) + ',') * <n>",
    ),
    "b": (
        "bytes(<n>)", "b'a' * <n>", "b'a' * (<n> // 2) + b'b' + b'a' * (<n> // 2)", "(chr(300) * <n>).encode()", "b'ab' * <n>",
        "b'a' * <n> + b'b'",
    ),
    "l": (
        "[1] * <n>", "range(<n>)", "[i * 7919 % 10007 for i in range(<n>)]", "[2 ** 255 - i for i in range(<n>)]", "[True] * <n>",
        "[None] * <n>", "[0] * <n> + [1]", "[False] * <n>",
    ),
    "m": ("['a'] * <n>", "[str(i) for i in range(<n>)]", "['a' * <n>] * 9", "[''] * <n>", "[chr(300)] * <n>", "['a' * 40 + str(i) for i in range(<n>)]"),
    "k": (
        "[[1]] * <n>", "[[]] * <n>", "[()] * <n>", "[(1, 'a')] * <n>", "[[1, 2]] * <n>", "[{}] * <n>", "[(i * 7919 % 101, str(i)) for i in range(<n>)]",
        "[[[[[1]]]]] * <n>", "[{'a': 1}] * <n>", "[('a',) * <n>] * 5", "[(i, (i,)) for i in range(<n>)]", "[[]]",
    ),
    "p": ("(1,) * <n>", "((),) * <n>", "('a',) * <n>", "()", "(1, 2)", "(2 ** 255,) * <n>", "([],)"),
    "d": ("{}", "{str(i): i for i in range(<n>)}", "{'a': 1}", "{chr(70000) * 256: 1}", "{'a': {}}", "{'a': {'a': []}}"),
    "e": ("{i: i for i in range(<n>)}", "{b'a': 1}", "{1: 1}", "{0: {}}", "{5: [5]}"),
}  # fmt: skip
"""What variables hold at first; ``<n>`` is a size."""


class Template(NamedTuple):
    """Text with numbered places, and the kind of what stands in each."""

    text: str
    kinds: str = ""

    @classmethod
    def of(cls, written: str) -> Template:
        """``<s>`` is a place of its own, of this kind; ``<0>`` the first of these again."""
        kinds = re.findall(r"<([a-z])>", written)
        places = iter(range(len(kinds)))
        return cls(re.sub(r"<[a-z]>", lambda _: f"<{next(places)}>", written), "".join(kinds))

    def filled(self, parts: tuple[Node, ...]) -> str:
        written = [part.written() for part in parts]
        return re.sub(r"<([0-9])>", lambda place: written[int(place[1])], self.text)


def _many(sign: str, kind: str) -> list[str]:
    """The same many times, with a sign between."""
    return [f"(<{kind}>" + f"{sign}<0>" * (count - 1) + ")" for count in MANY]


def _signs(signs: str, pairs: str) -> list[str]:
    """Each sign between each pair of kinds."""
    return [f"(<{one}> {sign} <{other}>)" for sign in signs.split() for one, other in map(tuple, pairs.split())]


ORDER: Final = "< <= > >= == !="
ORDERED: Final = "nn ww tt ss uu bb ll mm kk pp"

_EXPRESSIONS: Final[dict[str, list[str]]] = {
    "n": [
        "5", "1", "0", "len(<a>)", "(<n> % 7)", "(<w> // 3)",
        "abs(<n>)", "ord('a')", "<w>.bit_length()", "sum(<l>)", "int(<n>)",
        "int(str(<n>))", "min(<n>, <n>)", "max(<l>)", "min(<l>)",
        "max(<n>, <n>, <0>, <1>)", "(<n> if <t> else <n>)", "(<t> + <t>)", "(<t> * <n>)",
        "<l>[0]", "<l>[-1]", "<l>[<n>]", "<l>[<t>]", "<d>['a']",
        "<e>[1]", "<e>[<n>]", "<e>.get(<n>)", "<d>.get(<s>, 0)",
        "<d>.get(<b>)", "<e>.get(<t>, 5)", "<s>.find(<s>)", "<u>.find(<u>)",
        "<u>.find(<s>)", "<b>.find(<b>)", "<s>.count(<s>)", "<u>.count(<u>)",
        "<b>.count(<b>)", "<l>.count(<a>)", "<l>.index(<n>)", "<k>.count(<k>)",
        "self.height", "self.value", "self.balance", "self.lane_price", "self.LIMIT",
        "self.one(<n>)", "self.two(<n>, <a>)", "self.down(60)", "int.from_bytes(<b>)",
        "ord(<s>)", "b'a'[0]", "-<n>", "+<n>", "~<n>", "-<t>",
        "~<t>", "int(<s>)", "int(<t>)", "(<n> and <n>)",
    ],
    "w": [
        *_signs("+ - * // % & | ^", "nn ww"), *_signs("// % &", "wn"),
        "(<n> ** 2)", "(3 ** 161)", "(2 ** <n>)", "(<t> ** <n>)", "(<w> ** 1)",
        "(<n> << 1)", "(<n> << <n>)", "(<w> >> <n>)", "(<w> >> 9)", "(<t> >> 9)",
        "-<w>", "~<w>", "abs(<w>)", "int(str(<w>))", "sum(<l>)",
        "int.from_bytes(<b>[:32])", "(1 << 255)", "(0 << <w>)",
        *_many(" + ", "n"), *_many(" * 1 * ", "n"), *_many(" & ", "w"), *_many(" % ", "w"), *_many(" | ", "t"), *_many(" + ", "t"), *_many(" // ", "w"),
    ],
    "t": [
        *_signs(ORDER, ORDERED),
        *_signs("== !=", "dd ee oo aa bs sb nt wn lp oa ku"),
        *_signs("in", "nl sm ss uu bb su sd ne bd te ak kk pk oa wl nb dk us"), "(<n> not in <l>)", "(<s> not in <s>)",
        *(f"(<{one}> {sign} <{other}> {sign} <0>)" for sign in ("<", "<=", "==") for one, other in map(tuple, ORDERED.split())),
        *(each for kind, _ in map(tuple, ORDERED.split()) for sign in (" <= ", " == ") for each in _many(sign, kind)), *_many(" == ", "d"), *_many(" == ", "o"),
        *_many(" == ", "e"), *_many(" is None is not None is ", "a"),
        "(<n> < 5)", "(<a> == 5)", "(<s> == 'a')", "(<b> == 'a')", "('" + "q" * 31 + "' < <s>)",
        "(<a> == b'" + "q" * 31 + "')", "(<a> is None)", "(<a> is not None)", "(not <a>)",
        "bool(<a>)", "all(<l>)", "any(<l>)", "all(<u>)", "any(<k>)",
        "all(<e>)", "<s>.startswith(<s>)", "<s>.endswith(<s>)", "<u>.startswith(<u>)",
        "<b>.endswith(<b>)", "(<t> and <t>)", "(<t> or <t>)", *_many(" and ", "a"), *_many(" or ", "a"),
        "self.pending(bytes(32))", "(<n> == <n> == 5)",
    ],
    "o": ["None", "self.nothing()", "self.get('n')", "self.get(<s>[:1000])", "self.get(<u>[:1000])"],
    "s": [
        "'a'", "''", "','", "'b'", "(<s> + <s>)", "(<s> * 3)", "(<s> * <n>)",
        "(<t> * <s>)", "str(<n>)", "str(<w>)", "str(<s>)", "str(<t>)", "chr(97)",
        "<s>[<n>:]", "<s>[:<n>]", "<s>[1:2]", "<s>[0]", "<s>[<n>]",
        "<s>.replace(<s>, <s>)", "<s>.replace(<s>, 'c')", "<s>.replace('a', '')", "<s>.strip()",
        "<s>.strip(<s>)", "<s>.lower()", "<s>.upper()", "<s>.join(<m>)", "''.join(<s>)",
        "<b>.hex()", "<b>.decode()", "STANDARD", "(<s> if <t> else <s>)", "max(<s>, <s>)",
        "min(<m>)", "<m>[0]", "self.one(<s>)", "(<s> or <s>)",
    ],
    "u": [
        "chr(300)", "chr(<n>)", "(<u> + <s>)", "(<u> + <u>)", "(<u> * <n>)", "(<u> * 3)",
        "<u>[<n>:]", "<u>[1:2]", "<u>[0]", "<u>.replace(<u>, <u>)", "<u>.replace(<u>, 'c')",
        "<s>.replace('a', <u>)", "<u>.strip(<u>)", "<u>.join(<m>)", "<u>.join(<0>)", "<b>.decode()",
        "<u>.strip()", "max(<u>)",
    ],
    "b": [
        "b''", "b'a'", "(<b> + <b>)", "(<b> * <n>)", "<s>.encode()", "<u>.encode()",
        "bytes(<n>)", "bytes(<b>)", "bytes([1, 2, 3])", "bytes(<l>)", "keccak256(<b>)",
        "<b>[<n>:]", "<b>[:9]", "<b>.strip()", "<b>.strip(<b>)", "bytes.fromhex(<s>)",
        "<w>.to_bytes(32)", "<n>.to_bytes(8)", "self.sender", "self.address", "self.deployer", "self.origin_hash",
        "<b>.replace(<b>, b'c')", "<b>.replace(<b>, <b>)", "b','.join([<b>, <b>])", "<b>.hex().encode()",
    ],
    "l": [
        "[]", "[<a>]", "[<a>, <a>]", "(<l> + <l>)", "(<l> * <n>)", "(<l> * 3)",
        "list(<a>)", "list()", "sorted(<l>)", "sorted(<l>, True)", "sorted([<n>, <n>])",
        "reversed(<l>)", "reversed(<u>)", "<l>[<n>:]", "<l>[:2]", "<l>[1:2]",
        "range(<n> % 500)", "range(3)", "<l>.copy()", "<d>.values()", "list(<s>)", "list(<u>)",
        "list(<b>)", "[x for x in <l>]", "[x for x in <l> if x]", "[<n> for x in <l>]", "[1 for x in <u>]",
        "[x for x in range(20)]", "[x + 1 for x in <l>]", "<e>.keys()", "<e>.values()", "list(<e>)",
        "[<a> for x in range(9)]", "[x for x in <l> if <t>]", "[<n>]", "[<n>" + ", <0>" * 59 + "]",
        "[<a>" + ", <0>" * 59 + "]", "[x == y for x, y in <k>]", "[x for x in <e>]", "(<l> and <l>)",
    ],
    "m": [
        "<s>.split(<s>)", "<s>.split(',')", "<u>.split(<u>)", "<b>.split(<b>)", "<s>.split('a')",
        "<d>.keys()", "list(<d>)", "sorted(<m>)", "['a', <s>]", "[str(x) for x in <l>]",
        "[x for x in <s>]", "(<m> + <m>)", "reversed(<m>)", "sorted(<s>)", "sorted(<u>)",
    ],
    "k": [
        "[[]]", "[[<a>], <l>]", "enumerate(<l>)", "enumerate(<u>)", "enumerate(<l>, <w>)",
        "enumerate(<e>)", "zip(<l>, <l>)", "zip(<l>, <u>, <s>)", "zip(<u>, <0>)", "<d>.items()",
        "<e>.items()", "[[x for x in range(3)] for y in <l>]", "[(x, x) for x in <l>]", "sorted(<k>)",
        "sorted(zip(<l>, <l>))", "[{} for x in range(9)]", "[[], []]", "[<k>, <0>]", "(<k> + <k>)",
        "list(<k>)", "[x for x in <k>]", "sorted([(<s>, 1), (<s>, 2)])", "sorted([<p>, <p>])", "[<k>]",
    ],
    "p": [
        "()", "(<a>,)", "(<a>, <a>)", "(<p> + <p>)", "(<p> * <n>)", "tuple(<l>)",
        "tuple(<u>)", "<p>[<n>:]", "<p>[1:2]", "tuple()", "max(<k>)", "((), ())",
        "(<n>" + ", <0>" * 59 + ")", "(<p> if <t> else <p>)",
    ],
    "d": [
        "{}", "{'a': <a>}", "{'a': <a>, 'b': <0>}", "{<s>: <n>}", "{<b>: 1, <s>: 2}",
        "<d>.copy()", "dict(<d>)", "{x: 1 for x in <m>}", "{x: 1 for x in <s>}", "{x: 1 for x in <u>}",
        "dict()", "dict(zip(<m>, <l>))", "{'a': 1 for x in <l>}", "dict(<d>.items())",
    ],
    "e": [
        "{<n>: <a>}", "{1: <a>, 2: <0>}", "{x: x for x in <l>}", "{x: 1 for x in range(9)}", "<e>.copy()",
        "dict(<e>)", "dict(enumerate(<l>))", "{True: 1, <n>: 2}", "{x: y for x, y in <k>}",
    ],
}  # fmt: skip
EXPRESSIONS: Final = {kind: list(map(Template.of, texts)) for kind, texts in _EXPRESSIONS.items()}
"""What gives a value of a kind."""

_STATEMENTS: Final[list[str]] = [
    *(f"x = <{kind}>" for kind in KINDS * 3),
    "pass", "'a remark'", "x = y", "x, y = y, x", "x: int = <n>", "x = 1\nx += <n>",
    "x = []\nx += <l>", "x = []\nx += <u>", "x = <l>\nx *= 2", "x = <s>\nx *= 2", "x = <s>\nx += <s>",
    "n0 += 1", "n0 -= 1", "x = []\nx.append(<a>)", "z.append(<a>)", "x = []\nx.extend(<l>)",
    "x = []\nx.extend(<u>)", "x = []\nx.insert(<n>, 1)", "<l>.insert(0, 1)\n<0>.pop(0)", "<l>.append(1)\n<0>.pop()",
    "<l>.append(1)\ndel <0>[0]", "<l>.append(<a>)\n<0>.remove(<1>)", "<l>.reverse()", "<l>.sort()",
    "<m>.sort()", "<k>.sort()", "x = <l>\nx.clear()", "x = {'a': 1}\nx.clear()", "x = {}\nx.update(<d>)",
    "x = {}\nx.update(<e>)", "<d>.update(<d>)", "<d>.setdefault(<s>[:9], 1)", "<e>.setdefault(<n>, 1)",
    "<d>['a'] = <a>\ndel <0>['a']", "<e>[5] = 1\n<0>.pop(5)", "<d>['a'] = 1\n<0>.pop('a')", "<d>.pop(<n>, 1)",
    "<d>['a'] = <a>", "<e>[<n>] = 1", "<e>[<t>] = 1", "<d>[<u>[:256]] = 1", "<l>[0] = <a>",
    "<l>[<t>] = 5", "<l>[<n>] = 5", "<l>[0] += 1", "x = {'a': 1}\nx['a'] += <n>", "x = {1: 1}\nx[1] += <n>",
    "x, y = <a>, <a>", "x, y = (<n>, <a>)", "x, y = [1, 2]", "x, = [<a>]", "x, y = <l>[:2]",
    "x, y = <u>[:2]", "() = ()", "[] = <l>[:0]", "x, y = {1: 1, 2: 2}", "assert not (<a> and 0)",
    "assert <a> or 1, 'text'", "self.one(<a>)", "self.nothing()", "self.many(<a>" + ", <0>" * 15 + ")",
    "self.down(60)", "self.large()",
    "x = await self.rest(<a>)", "x = await self.spawn(self.rest(<a>))", "await self.pause()", "await self.deep(60)",
    "x = self.spawn(self.rest(1))\nawait x\nawait x", "await self.deep_pause(60)", "await self.deep_pause(<n> % 61)",
    "self.set('k', <n>)", "self.set('k', <a>)", "self.set(<s>[:1000], 1)", "self.set('k', <a>)\nx = self.get('k')",
    "self.set('k', <n>)\nself.delete('k')", "self.emit('e', <n>)", "self.emit('e', <s>)", "self.emit('e', <u>)",
    "self.emit('e', <b>)", "self.emit(<s>[:256], 1)", "self.transfer(self.deployer, 1)", "self.burn(0)",
    "self.cancel(self.schedule(self.height + 3, <a>))", "x = self.schedule(self.height + 3, 1)\nself.pending(x)\nself.cancel(x)",
]  # fmt: skip
STATEMENTS: Final = list(map(Template.of, _STATEMENTS))
"""Plain statements."""

_COMPOUND: Final[list[str]] = [
    "if <a>:", "if <t>:", "if not <n>:", "for y in range(<n> % 50):", "for y in range(3):",
    "for y in <l>:", "for y in <s>:", "for y in <u>:", "for y in <d>:", "for y in <e>:",
    "for y in <b>:", "for x, y in <k>:", "for x, y in enumerate(<l>):", "for x, y in <e>.items():",
    "for y in [1]:", "for y in ():", "i = 0\nwhile i < 20:\n    i += 1\n    pass\nif 1:", "if <a>:\n    pass\nelif <0>:\n    pass\nelse:",
    "for y in <l>:\n    continue\nif 1:", "for y in <l>:\n    break\nif 1:", "while <a> and y:\n    break\nif 0:",
]  # fmt: skip
COMPOUND: Final = list(map(Template.of, _COMPOUND))
"""What a block stands below."""

METHODS: Final = (
    "def one(self, x):\n    return x",
    "def two(self, x, y):\n    if y:\n        return x\n    return x",
    "def nothing(self):\n    pass",
    "def many(self, " + ", ".join(f"a{i}" for i in range(16)) + "):\n    return a0",
    "def down(self, n):\n    return self.down(n - 1) if n else 0",
    "def large(self):\n    return 1\n" + "".join(f"    v{i} = 1\n" for i in range(300)),
    "async def rest(self, x):\n    return x",
    "async def deep(self, n):\n    if n:\n        await self.deep(n - 1)",
    "async def deep_pause(self, n):\n    if n:\n        await self.deep_pause(n - 1)\n    else:\n        await self.pause()",
)


class Variable(NamedTuple):
    """What a variable holds at first."""

    text: str
    size: int

    def written(self) -> str:
        return self.text.replace("<n>", str(self.size))


class Node(NamedTuple):
    """An expression: a variable's name, or a template and what stands in its places."""

    kind: str
    template: Template
    parts: tuple[Node, ...] = ()

    def written(self) -> str:
        return self.template.filled(self.parts)


class Statement(NamedTuple):
    """A statement so many times, with a block below it where it is compound."""

    template: Template
    parts: tuple[Node, ...]
    copies: int = 1
    block: tuple[Statement, ...] | None = None

    def lines(self) -> Iterator[str]:
        own = self.template.filled(self.parts).split("\n")
        inner = [] if self.block is None else [f"    {line}" for each in self.block for line in each.lines()]
        for _ in range(self.copies):
            yield from own
            yield from inner

    def names(self) -> set[str]:
        """The variables that it looks at."""
        found = _names_in(self.template.filled(self.parts))
        return found.union(*(each.names() for each in self.block or ()))

    def size(self) -> int:
        """Characters of its lines, those of their indentation in the program included."""
        inner = sum(each.size() for each in self.block or ())
        lines = self.template.filled(self.parts).split("\n")
        return self.copies * (inner + sum(len(line) + LINE_AROUND for line in lines))

    def halved(self) -> Statement:
        """Half as many times, its block too."""
        block = None if self.block is None else tuple(each.halved() for each in self.block)
        return self._replace(copies=max(1, self.copies // 2), block=block)


def _names_in(text: str) -> set[str]:
    """The variables that have a value at first."""
    return set(re.findall(r"\b[a-z][01]\b", text))


class Shape(NamedTuple):
    """A handler: its variables by name, and what it does again and again."""

    variables: tuple[tuple[str, Variable], ...]
    body: tuple[Statement, ...]

    def source(self) -> str | None:
        """A program, with fewer copies of its statements where it has too many characters; ``None`` where it has even so."""
        shape = self
        while sum(each.size() for each in shape.body) > MAX_SOURCE_BYTES:
            fewer = shape._replace(body=tuple(each.halved() for each in shape.body))
            if fewer == shape:
                return None
            shape = fewer
        return shape._written()

    def _written(self) -> str:
        text = "\n".join(f"    {line}" for each in self.body for line in each.lines())
        first = [f"{name} = {value.written()}" for name, value in self.variables if name in _names_in(text)]
        called = [each for each in METHODS if f"self.{each.split('(')[0].split()[-1]}(" in text]
        made = program("\n".join(["x = 1", "y = 1", "z = []", *first, "while True:", text]), *called)
        made = made.replace("class Case(Actor):\n", "class Case(Actor):\n    LIMIT = 7\n")
        is_async = "await " in text or "self.spawn(" in text
        return made.replace("    def handle(", "    async def handle(") if is_async else made

    def said(self) -> str:
        """In one line, for a table."""
        text = "; ".join("\n".join(each._replace(copies=1).lines()).replace("\n", "; ") for each in self.body)
        copies = ", ".join(str(each.copies) for each in self.body)
        first = ", ".join(f"{name}={value.written()}" for name, value in self.variables if name in _names_in(text))
        return f"{text}  × {copies}" + (f"  with {first}" if first else "")


class Draw:
    """Draws and changes shapes; each draw knows a part of the templates alone, so that no two look for the same."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        share = self.random.choice((0.08, 0.25, 1.0))
        self._expressions = {kind: self._some(known, share) for kind, known in EXPRESSIONS.items()}
        self._statements = self._some(STATEMENTS, share)

    def _some(self, known: list[Template], share: float) -> list[Template]:
        return self.random.sample(known, max(2, int(len(known) * share)))

    def shape(self) -> Shape:
        variables = []
        for kind in KINDS:
            first = self._variable(kind)
            other = first if self.random.random() < 0.5 else self._variable(kind)
            variables += [(f"{kind}0", first), (f"{kind}1", other)]
        return Shape(tuple(variables), tuple(self.statement() for _ in range(self.random.choice((1, 1, 2, 4)))))

    def _variable(self, kind: str) -> Variable:
        return Variable(self.random.choice(FIRST[kind]), self._size())

    def _size(self) -> int:
        return self.random.choice(SIZES) if self.random.random() < 0.7 else int(2 ** (self.random.random() * 15))

    def node(self, kind: str, depth: int = 0) -> Node:
        random = self.random
        if kind == "a":
            kind = random.choice(KINDS)
        if depth >= DEPTH or random.random() < 0.45 + 0.15 * depth:
            return Node(kind, Template(f"{kind}{random.randrange(2)}"))
        template = random.choice(self._expressions[kind])
        return Node(kind, template, tuple(self.node(each, depth + 1) for each in template.kinds))

    def statement(self, depth: int = 0) -> Statement:
        random = self.random
        copies = random.choice((1, 1, 3, 20, 150, MAX_COPIES))
        if depth < 2 and random.random() < 0.2:
            template = random.choice(COMPOUND)
            block = tuple(self.statement(depth + 1) for _ in range(random.choice((1, 1, 2))))
        else:
            template, block = random.choice(self._statements), None
        parts = tuple(self.node(kind, 1) for kind in template.kinds)
        return Statement(template, parts, min(copies, 20) if depth or block else copies, block)

    # --- changes ------------------------------------------------------------------------------------------------------

    def changed(self, shape: Shape) -> Shape:
        """Another shape, a step away."""
        random = self.random
        what = random.randrange(8)
        used = set().union(*(each.names() for each in shape.body))
        if what <= 2:
            place = random.choice([i for i, (name, _) in enumerate(shape.variables) if name in used] or [0])
            return shape._replace(variables=self._other_variable(shape.variables, place))
        place = random.randrange(len(shape.body))
        body = list(shape.body)
        if what == 3 and len(body) < 6:
            body.append(self.statement())
        elif what == 4 and len(body) > 1:
            del body[place]
        elif what == 5:
            body[place] = self.statement()
        else:
            body[place] = self._other_statement(body[place])
        return shape._replace(body=tuple(body))

    def _other_variable(
        self, variables: tuple[tuple[str, Variable], ...], place: int
    ) -> tuple[tuple[str, Variable], ...]:
        """Another value or size; both variables of a kind together now and then, so that they stay equal."""
        random, (name, before) = self.random, variables[place]
        value = random.choice((
            self._variable(name[0]), before._replace(size=self._size()), before._replace(size=before.size * 2 % 40_000), before._replace(size=before.size // 2),
            before._replace(size=max(0, before.size + random.choice((-1, 1)))),
        ))  # fmt: skip
        both = random.random() < 0.5
        return tuple((each, value if each == name or (both and each[0] == name[0]) else old) for each, old in variables)

    def _other_statement(self, before: Statement) -> Statement:
        random = self.random
        if before.block and random.random() < 0.5:
            place = random.randrange(len(before.block))
            inner = [*before.block]
            inner[place] = self._other_statement(inner[place])
            return before._replace(block=tuple(inner))
        if random.random() < 0.3 or not before.parts:
            copies = random.choice((before.copies * 2, before.copies // 2, before.copies * 5, 1, before.copies + 1))
            return before._replace(copies=max(1, min(copies, MAX_COPIES)))
        place = random.randrange(len(before.parts))
        parts = [*before.parts]
        parts[place] = self._other_node(parts[place])
        return before._replace(parts=tuple(parts))

    def _other_node(self, before: Node) -> Node:
        if before.parts and self.random.random() < 0.6:
            place = self.random.randrange(len(before.parts))
            parts = [*before.parts]
            parts[place] = self._other_node(parts[place])
            return before._replace(parts=tuple(parts))
        return self.node(before.kind)
