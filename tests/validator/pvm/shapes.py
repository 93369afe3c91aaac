"""Shapes of programs: what a handler holds in variables, and what it does with it in an endless loop.

A shape is drawn from a seeded source and changed bit by bit, so that a search can climb from one to the next. Everything
comes from templates; ``{0}``, ``{1}`` stand for expressions of the kinds that a template names, and one number may stand
there many times. Kinds: ``n`` small and ``w`` wide integers, ``t`` truth values, ``o`` None, ``s`` ASCII texts, ``u``
other texts, ``b`` bytes, ``l`` lists of scalars, ``m`` lists of texts, ``k`` lists of lists, tuples or dicts, ``p``
tuples, ``d`` dicts by texts, ``e`` dicts by numbers, ``a`` any of these.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from random import Random
from typing import Final, NamedTuple

from tests.validator.pvm.running import program
from validator.pvm.limits import MAX_SOURCE_BYTES

KINDS: Final = "nwtosublmkpde"
DEPTH: Final = 3
SIZES: Final = (0, 1, 2, 3, 8, 31, 32, 33, 99, 100, 101, 255, 256, 257, 1_000, 3_000, 10_000, 30_000)
MOST_COPIES: Final = 2_000
MANY: Final = (2, 3, 8, 25, 70)

FIRST: Final[dict[str, tuple[str, ...]]] = {
    "n": ("{n}", "-{n}", "2 ** 59", "5"),
    "w": ("2 ** 255 - {n} - 1", "2 ** 127 + {n}", "2 ** 128 - 3", "-(2 ** 255)", "2 ** 64 + {n}"),
    "t": ("True", "False"),
    "o": ("None",),
    "s": (
        "'a' * {n}", "'a' * ({n} // 2) + 'b' + 'a' * ({n} // 2)", "'a' * {n} + 'b'", "'b' + 'a' * {n}", "'ab' * {n}", "'ab,' * {n}",
        "' ' * {n}", "'9' * min({n} + 1, 77)", "'0f' * {n}", "'A' * {n}",
    ),
    "u": (
        "chr(300) * {n}", "chr(70000) * {n}", "('a' + chr(300)) * {n}", "chr(300) * ({n} // 2) + 'b' + chr(300) * ({n} // 2)",
        "'a' * {n} + chr(300)", "(chr(20000) + ',') * {n}",
    ),
    "b": (
        "bytes({n})", "b'a' * {n}", "b'a' * ({n} // 2) + b'b' + b'a' * ({n} // 2)", "(chr(300) * {n}).encode()", "b'ab' * {n}",
        "b'a' * {n} + b'b'",
    ),
    "l": (
        "[1] * {n}", "range({n})", "[i * 7919 % 10007 for i in range({n})]", "[2 ** 255 - i for i in range({n})]", "[True] * {n}",
        "[None] * {n}", "[0] * {n} + [1]", "[False] * {n}",
    ),
    "m": ("['a'] * {n}", "[str(i) for i in range({n})]", "['a' * {n}] * 9", "[''] * {n}", "[chr(300)] * {n}", "['a' * 40 + str(i) for i in range({n})]"),
    "k": (
        "[[1]] * {n}", "[[]] * {n}", "[()] * {n}", "[(1, 'a')] * {n}", "[[1, 2]] * {n}", "[{{}}] * {n}", "[(i * 7919 % 101, str(i)) for i in range({n})]",
        "[[[[[1]]]]] * {n}", "[{{'a': 1}}] * {n}", "[('a',) * {n}] * 5", "[(i, (i,)) for i in range({n})]", "[[]]",
    ),
    "p": ("(1,) * {n}", "((),) * {n}", "('a',) * {n}", "()", "(1, 2)", "(2 ** 255,) * {n}", "([],)"),
    "d": ("{{}}", "{{str(i): i for i in range({n})}}", "{{'a': 1}}", "{{chr(70000) * 256: 1}}", "{{'a': {{}}}}", "{{'a': {{'a': []}}}}"),
    "e": ("{{i: i for i in range({n})}}", "{{b'a': 1}}", "{{1: 1}}", "{{0: {{}}}}", "{{5: [5]}}"),
}  # fmt: skip
"""What variables hold at first; ``{n}`` is a size."""


class Template(NamedTuple):
    """Text with places, and the kind of what stands in each."""

    text: str
    kinds: str = ""


def _many(sign: str, kind: str) -> list[Template]:
    return [Template("(" + sign.join(["{0}"] * count) + ")", kind) for count in MANY]


_BINARY = [(sign, kind) for sign in "+ - * // % & | ^".split() for kind in "nw"]
_ORDER = ("<", "<=", ">", ">=", "==", "!=")
_ORDERED = "nwtsublmkp"

EXPRESSIONS: Final[dict[str, list[Template]]] = {
    "n": [
        Template("5"), Template("1"), Template("0"), Template("len({0})", "a"), Template("({0} % 7)", "n"), Template("({0} // 3)", "w"),
        Template("abs({0})", "n"), Template("ord('a')"), Template("{0}.bit_length()", "w"), Template("sum({0})", "l"), Template("int({0})", "n"),
        Template("int(str({0}))", "n"), Template("min({0}, {1})", "nn"), Template("max({0})", "l"), Template("min({0})", "l"),
        Template("max({0}, {1}, {0}, {1})", "nn"), Template("({0} if {1} else {2})", "ntn"), Template("({0} + {1})", "tt"), Template("({0} * {1})", "tn"),
        Template("{0}[0]", "l"), Template("{0}[-1]", "l"), Template("{0}[{1}]", "ln"), Template("{0}[{1}]", "lt"), Template("{0}['a']", "d"),
        Template("{0}[1]", "e"), Template("{0}[{1}]", "en"), Template("{0}.get({1})", "en"), Template("{0}.get({1}, 0)", "ds"),
        Template("{0}.get({1})", "db"), Template("{0}.get({1}, 5)", "et"), Template("{0}.find({1})", "ss"), Template("{0}.find({1})", "uu"),
        Template("{0}.find({1})", "us"), Template("{0}.find({1})", "bb"), Template("{0}.count({1})", "ss"), Template("{0}.count({1})", "uu"),
        Template("{0}.count({1})", "bb"), Template("{0}.count({1})", "la"), Template("{0}.index({1})", "ln"), Template("{0}.count({1})", "kk"),
        Template("self.height"), Template("self.value"), Template("self.balance"), Template("self.lane_price"), Template("self.LIMIT"),
        Template("self.one({0})", "n"), Template("self.two({0}, {1})", "na"), Template("self.down(60)"), Template("int.from_bytes({0})", "b"),
        Template("ord({0})", "s"), Template("b'a'[0]"), Template("-{0}", "n"), Template("+{0}", "n"), Template("~{0}", "n"), Template("-{0}", "t"),
        Template("~{0}", "t"), Template("int({0})", "s"), Template("int({0})", "t"), Template("({0} and {1})", "nn"),
    ],
    "w": [
        *(Template(f"({{0}} {sign} {{1}})", kind * 2) for sign, kind in _BINARY), *(Template(f"({{0}} {sign} {{1}})", "wn") for sign in ("//", "%", "&")),
        Template("({0} ** 2)", "n"), Template("(3 ** 161)"), Template("(2 ** {0})", "n"), Template("({0} ** {1})", "tn"), Template("({0} ** 1)", "w"),
        Template("({0} << 1)", "n"), Template("({0} << {1})", "nn"), Template("({0} >> {1})", "wn"), Template("({0} >> 9)", "w"), Template("({0} >> 9)", "t"),
        Template("-{0}", "w"), Template("~{0}", "w"), Template("abs({0})", "w"), Template("int(str({0}))", "w"), Template("sum({0})", "l"),
        Template("int.from_bytes({0}[:32])", "b"), Template("(1 << 255)"), Template("(0 << {0})", "w"),
        *_many(" + ", "n"), *_many(" * 1 * ", "n"), *_many(" & ", "w"), *_many(" % ", "w"), *_many(" | ", "t"), *_many(" + ", "t"), *_many(" // ", "w"),
    ],
    "t": [
        *(Template(f"({{0}} {sign} {{1}})", kind * 2) for sign in _ORDER for kind in _ORDERED),
        *(Template(f"({{0}} {sign} {{1}})", kinds) for sign in ("==", "!=") for kinds in ("dd", "ee", "oo", "aa", "bs", "sb", "nt", "wn", "lp", "oa", "ku")),
        *(Template(f"({{0}} {sign} {{1}})", kinds) for sign in ("in", "not in") for kinds in (
            "nl", "nl", "sm", "ss", "uu", "bb", "su", "sd", "ne", "bd", "te", "ak", "kk", "pk", "oa", "wl", "nb", "dk", "us",
        )),
        *(Template(f"({{0}} {sign} {{1}} {sign} {{0}})", kind * 2) for sign in ("<", "<=", "==") for kind in _ORDERED),
        *(each for kind in _ORDERED for sign in (" <= ", " == ") for each in _many(sign, kind)), *_many(" == ", "d"), *_many(" == ", "o"),
        *_many(" == ", "e"), *_many(" is None is not None is ", "a"),
        Template("({0} < 5)", "n"), Template("({0} == 5)", "a"), Template("({0} == 'a')", "s"), Template("({0} == 'a')", "b"), Template("('" + "q" * 31 + "' < {0})", "s"),
        Template("({0} == b'" + "q" * 31 + "')", "a"), Template("({0} is None)", "a"), Template("({0} is not None)", "a"), Template("(not {0})", "a"),
        Template("bool({0})", "a"), Template("all({0})", "l"), Template("any({0})", "l"), Template("all({0})", "u"), Template("any({0})", "k"),
        Template("all({0})", "e"), Template("{0}.startswith({1})", "ss"), Template("{0}.endswith({1})", "ss"), Template("{0}.startswith({1})", "uu"),
        Template("{0}.endswith({1})", "bb"), Template("({0} and {1})", "tt"), Template("({0} or {1})", "tt"), *_many(" and ", "a"), *_many(" or ", "a"),
        Template("self.pending(bytes(32))"), Template("({0} == {1} == 5)", "nn"),
    ],
    "o": [Template("None"), Template("self.nothing()"), Template("self.get('n')"), Template("self.get({0}[:1000])", "s"), Template("self.get({0}[:1000])", "u")],
    "s": [
        Template("'a'"), Template("''"), Template("','"), Template("'b'"), Template("({0} + {1})", "ss"), Template("({0} * 3)", "s"), Template("({0} * {1})", "sn"),
        Template("({1} * {0})", "st"), Template("str({0})", "n"), Template("str({0})", "w"), Template("str({0})", "s"), Template("str({0})", "t"), Template("chr(97)"),
        Template("{0}[{1}:]", "sn"), Template("{0}[:{1}]", "sn"), Template("{0}[1:2]", "s"), Template("{0}[0]", "s"), Template("{0}[{1}]", "sn"),
        Template("{0}.replace({1}, {2})", "sss"), Template("{0}.replace({1}, 'c')", "ss"), Template("{0}.replace('a', '')", "s"), Template("{0}.strip()", "s"),
        Template("{0}.strip({1})", "ss"), Template("{0}.lower()", "s"), Template("{0}.upper()", "s"), Template("{0}.join({1})", "sm"), Template("''.join({0})", "s"),
        Template("{0}.hex()", "b"), Template("{0}.decode()", "b"), Template("STANDARD"), Template("({0} if {1} else {2})", "sts"), Template("max({0}, {1})", "ss"),
        Template("min({0})", "m"), Template("{0}[0]", "m"), Template("self.one({0})", "s"), Template("({0} or {1})", "ss"),
    ],
    "u": [
        Template("chr(300)"), Template("chr({0})", "n"), Template("({0} + {1})", "us"), Template("({0} + {1})", "uu"), Template("({0} * {1})", "un"), Template("({0} * 3)", "u"),
        Template("{0}[{1}:]", "un"), Template("{0}[1:2]", "u"), Template("{0}[0]", "u"), Template("{0}.replace({1}, {2})", "uuu"), Template("{0}.replace({1}, 'c')", "uu"),
        Template("{0}.replace('a', {1})", "su"), Template("{0}.strip({1})", "uu"), Template("{0}.join({1})", "um"), Template("{0}.join({0})", "u"), Template("{0}.decode()", "b"),
        Template("{0}.strip()", "u"), Template("max({0})", "u"),
    ],
    "b": [
        Template("b''"), Template("b'a'"), Template("({0} + {1})", "bb"), Template("({0} * {1})", "bn"), Template("{0}.encode()", "s"), Template("{0}.encode()", "u"),
        Template("bytes({0})", "n"), Template("bytes({0})", "b"), Template("bytes([1, 2, 3])"), Template("bytes({0})", "l"), Template("keccak256({0})", "b"),
        Template("{0}[{1}:]", "bn"), Template("{0}[:9]", "b"), Template("{0}.strip()", "b"), Template("{0}.strip({1})", "bb"), Template("bytes.fromhex({0})", "s"),
        Template("{0}.to_bytes(32)", "w"), Template("{0}.to_bytes(8)", "n"), Template("self.sender"), Template("self.address"), Template("self.deployer"),
        Template("{0}.replace({1}, b'c')", "bb"), Template("{0}.replace({1}, {2})", "bbb"), Template("b','.join([{0}, {1}])", "bb"), Template("{0}.hex().encode()", "b"),
    ],
    "l": [
        Template("[]"), Template("[{0}]", "a"), Template("[{0}, {1}]", "aa"), Template("({0} + {1})", "ll"), Template("({0} * {1})", "ln"), Template("({0} * 3)", "l"),
        Template("list({0})", "a"), Template("list()"), Template("sorted({0})", "l"), Template("sorted({0}, True)", "l"), Template("sorted([{0}, {1}])", "nn"),
        Template("reversed({0})", "l"), Template("reversed({0})", "u"), Template("{0}[{1}:]", "ln"), Template("{0}[:2]", "l"), Template("{0}[1:2]", "l"),
        Template("range({0} % 500)", "n"), Template("range(3)"), Template("{0}.copy()", "l"), Template("{0}.values()", "d"), Template("list({0})", "s"), Template("list({0})", "u"),
        Template("list({0})", "b"), Template("[x for x in {0}]", "l"), Template("[x for x in {0} if x]", "l"), Template("[{1} for x in {0}]", "ln"), Template("[1 for x in {0}]", "u"),
        Template("[x for x in range(20)]"), Template("[x + 1 for x in {0}]", "l"), Template("{0}.keys()", "e"), Template("{0}.values()", "e"), Template("list({0})", "e"),
        Template("[{0} for x in range(9)]", "a"), Template("[x for x in {0} if {1}]", "lt"), Template("[{0}]", "n"), Template("[" + "{0}, " * 60 + "]", "n"),
        Template("[" + "{0}, " * 60 + "]", "a"), Template("[x == y for x, y in {0}]", "k"), Template("[x for x in {0}]", "e"), Template("({0} and {1})", "ll"),
    ],
    "m": [
        Template("{0}.split({1})", "ss"), Template("{0}.split(',')", "s"), Template("{0}.split({1})", "uu"), Template("{0}.split({1})", "bb"), Template("{0}.split('a')", "s"),
        Template("{0}.keys()", "d"), Template("list({0})", "d"), Template("sorted({0})", "m"), Template("['a', {0}]", "s"), Template("[str(x) for x in {0}]", "l"),
        Template("[x for x in {0}]", "s"), Template("({0} + {1})", "mm"), Template("reversed({0})", "m"), Template("sorted({0})", "s"), Template("sorted({0})", "u"),
    ],
    "k": [
        Template("[[]]"), Template("[[{0}], {1}]", "al"), Template("enumerate({0})", "l"), Template("enumerate({0})", "u"), Template("enumerate({0}, {1})", "lw"),
        Template("enumerate({0})", "e"), Template("zip({0}, {1})", "ll"), Template("zip({0}, {1}, {2})", "lus"), Template("zip({0}, {0})", "u"), Template("{0}.items()", "d"),
        Template("{0}.items()", "e"), Template("[[x for x in range(3)] for y in {0}]", "l"), Template("[(x, x) for x in {0}]", "l"), Template("sorted({0})", "k"),
        Template("sorted(zip({0}, {1}))", "ll"), Template("[{{}} for x in range(9)]"), Template("[[], []]"), Template("[{0}, {0}]", "k"), Template("({0} + {1})", "kk"),
        Template("list({0})", "k"), Template("[x for x in {0}]", "k"), Template("sorted([({0}, 1), ({1}, 2)])", "ss"), Template("sorted([{0}, {1}])", "pp"), Template("[{0}]", "k"),
    ],
    "p": [
        Template("()"), Template("({0},)", "a"), Template("({0}, {1})", "aa"), Template("({0} + {1})", "pp"), Template("({0} * {1})", "pn"), Template("tuple({0})", "l"),
        Template("tuple({0})", "u"), Template("{0}[{1}:]", "pn"), Template("{0}[1:2]", "p"), Template("tuple()"), Template("max({0})", "k"), Template("((), ())"),
        Template("(" + "{0}, " * 60 + ")", "n"), Template("({0} if {1} else {2})", "ptp"),
    ],
    "d": [
        Template("{{}}"), Template("{{'a': {0}}}", "a"), Template("{{'a': {0}, 'b': {0}}}", "a"), Template("{{{0}: {1}}}", "sn"), Template("{{{0}: 1, {1}: 2}}", "bs"),
        Template("{0}.copy()", "d"), Template("dict({0})", "d"), Template("{{x: 1 for x in {0}}}", "m"), Template("{{x: 1 for x in {0}}}", "s"), Template("{{x: 1 for x in {0}}}", "u"),
        Template("dict()"), Template("dict(zip({0}, {1}))", "ml"), Template("{{'a': 1 for x in {0}}}", "l"), Template("dict({0}.items())", "d"),
    ],
    "e": [
        Template("{{{0}: {1}}}", "na"), Template("{{1: {0}, 2: {0}}}", "a"), Template("{{x: x for x in {0}}}", "l"), Template("{{x: 1 for x in range(9)}}"), Template("{0}.copy()", "e"),
        Template("dict({0})", "e"), Template("dict(enumerate({0}))", "l"), Template("{{True: 1, {0}: 2}}", "n"), Template("{{x: y for x, y in {0}}}", "k"),
    ],
}  # fmt: skip
EXPRESSIONS["a"] = [each for kind in KINDS for each in EXPRESSIONS[kind]]

STATEMENTS: Final[list[Template]] = [
    *(Template("x = {0}", kind) for kind in KINDS * 3),
    Template("pass"), Template("'a remark'"), Template("x = y"), Template("x, y = y, x"), Template("x: int = {0}", "n"), Template("x = 1\nx += {0}", "n"),
    Template("x = []\nx += {0}", "l"), Template("x = []\nx += {0}", "u"), Template("x = {0}\nx *= 2", "l"), Template("x = {0}\nx *= 2", "s"), Template("x = {0}\nx += {1}", "ss"),
    Template("n0 += 1"), Template("n0 -= 1"), Template("x = []\nx.append({0})", "a"), Template("z.append({0})", "a"), Template("x = []\nx.extend({0})", "l"),
    Template("x = []\nx.extend({0})", "u"), Template("x = []\nx.insert({0}, 1)", "n"), Template("{0}.insert(0, 1)\n{0}.pop(0)", "l"), Template("{0}.append(1)\n{0}.pop()", "l"),
    Template("{0}.append(1)\ndel {0}[0]", "l"), Template("{0}.append({1})\n{0}.remove({1})", "la"), Template("{0}.reverse()", "l"), Template("{0}.sort()", "l"),
    Template("{0}.sort()", "m"), Template("{0}.sort()", "k"), Template("x = {0}\nx.clear()", "l"), Template("x = {{'a': 1}}\nx.clear()"), Template("x = {{}}\nx.update({0})", "d"),
    Template("x = {{}}\nx.update({0})", "e"), Template("{0}.update({1})", "dd"), Template("{0}.setdefault({1}[:9], 1)", "ds"), Template("{0}.setdefault({1}, 1)", "en"),
    Template("{0}['a'] = {1}\ndel {0}['a']", "da"), Template("{0}[5] = 1\n{0}.pop(5)", "e"), Template("{0}['a'] = 1\n{0}.pop('a')", "d"), Template("{0}.pop({1}, 1)", "dn"),
    Template("{0}['a'] = {1}", "da"), Template("{0}[{1}] = 1", "en"), Template("{0}[{1}] = 1", "et"), Template("{0}[{1}[:256]] = 1", "du"), Template("{0}[0] = {1}", "la"),
    Template("{0}[{1}] = 5", "lt"), Template("{0}[{1}] = 5", "ln"), Template("{0}[0] += 1", "l"), Template("x = {{'a': 1}}\nx['a'] += {0}", "n"), Template("x = {{1: 1}}\nx[1] += {0}", "n"),
    Template("x, y = {0}, {1}", "aa"), Template("x, y = ({0}, {1})", "na"), Template("x, y = [1, 2]"), Template("x, = [{0}]", "a"), Template("x, y = {0}[:2]", "l"),
    Template("x, y = {0}[:2]", "u"), Template("() = ()"), Template("[] = {0}[:0]", "l"), Template("x, y = {{1: 1, 2: 2}}"), Template("assert not ({0} and 0)", "a"),
    Template("assert {0} or 1, 'text'", "a"), Template("self.one({0})", "a"), Template("self.nothing()"), Template("self.many(" + ", ".join(["{0}"] * 16) + ")", "a"),
    Template("self.down(60)"), Template("self.large()"),
    Template("x = await self.rest({0})", "a"), Template("x = await self.spawn(self.rest({0}))", "a"), Template("await self.pause()"), Template("await self.deep(60)"),
    Template("x = self.spawn(self.rest(1))\nawait x\nawait x"), Template("await self.deep_pause(60)"), Template("await self.deep_pause({0} % 61)", "n"),
    Template("self.set('k', {0})", "n"), Template("self.set('k', {0})", "a"), Template("self.set({0}[:1000], 1)", "s"), Template("self.set('k', {0})\nx = self.get('k')", "a"),
    Template("self.set('k', {0})\nself.delete('k')", "n"), Template("self.emit('e', {0})", "n"), Template("self.emit('e', {0})", "s"), Template("self.emit('e', {0})", "u"),
    Template("self.emit('e', {0})", "b"), Template("self.emit({0}[:256], 1)", "s"), Template("self.transfer(self.deployer, 1)"), Template("self.burn(0)"),
    Template("self.cancel(self.schedule(self.height + 3, {0}))", "a"), Template("x = self.schedule(self.height + 3, 1)\nself.pending(x)\nself.cancel(x)"),
]  # fmt: skip
"""Plain statements."""

COMPOUND: Final[list[Template]] = [
    Template("if {0}:", "a"), Template("if {0}:", "t"), Template("if not {0}:", "n"), Template("for y in range({0} % 50):", "n"), Template("for y in range(3):"),
    Template("for y in {0}:", "l"), Template("for y in {0}:", "s"), Template("for y in {0}:", "u"), Template("for y in {0}:", "d"), Template("for y in {0}:", "e"),
    Template("for y in {0}:", "b"), Template("for x, y in {0}:", "k"), Template("for x, y in enumerate({0}):", "l"), Template("for x, y in {0}.items():", "e"),
    Template("for y in [1]:"), Template("for y in ():"), Template("i = 0\nwhile i < 20:\n    i += 1\n    pass\nif 1:"), Template("if {0}:\n    pass\nelif {0}:\n    pass\nelse:", "a"),
    Template("for y in {0}:\n    continue\nif 1:", "l"), Template("for y in {0}:\n    break\nif 1:", "l"), Template("while {0} and y:\n    break\nif 0:", "a"),
]  # fmt: skip
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
        return self.text.format(n=self.size)


class Node(NamedTuple):
    """An expression: a variable's name, or a template and what stands in its places."""

    kind: str
    template: Template
    parts: tuple[Node, ...] = ()

    def written(self) -> str:
        return self.template.text.format(*(part.written() for part in self.parts))


class Statement(NamedTuple):
    """A statement so many times, with a block below it where it is compound."""

    template: Template
    parts: tuple[Node, ...]
    copies: int = 1
    block: tuple[Statement, ...] | None = None

    def lines(self) -> Iterator[str]:
        own = self.template.text.format(*(part.written() for part in self.parts)).split("\n")
        inner = [] if self.block is None else [f"    {line}" for each in self.block for line in each.lines()]
        for _ in range(self.copies):
            yield from own
            yield from inner


class Shape(NamedTuple):
    """A handler: its variables by name, and what it does again and again."""

    variables: tuple[tuple[str, Variable], ...]
    body: tuple[Statement, ...]

    def source(self) -> str | None:
        """A program; ``None`` where it has too many characters."""
        lines = [line for each in self.body for line in each.lines()]
        if sum(map(len, lines)) > MAX_SOURCE_BYTES:
            return None
        text = "\n".join(f"    {line}" for line in lines)
        used = set(re.findall(r"\b[a-z][01]\b", text))
        first = [f"{name} = {value.written()}" for name, value in self.variables if name in used]
        called = [each for each in METHODS if f"self.{each.split('(')[0].split()[-1]}(" in text]
        made = program("\n".join(["x = 1", "y = 1", "z = []", *first, "while True:", text]), *called)
        made = made.replace("class Case(Actor):\n", "class Case(Actor):\n    LIMIT = 7\n")
        is_async = "await " in text or "self.spawn(" in text
        return made.replace("    def handle(", "    async def handle(") if is_async else made

    def said(self) -> str:
        """In one line, for a table."""
        text = "; ".join("\n".join(each._replace(copies=1).lines()).replace("\n", "; ") for each in self.body)
        copies = ", ".join(str(each.copies) for each in self.body)
        used = set(re.findall(r"\b[a-z][01]\b", text))
        first = ", ".join(f"{name}={value.written()}" for name, value in self.variables if name in used)
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
        copies = random.choice((1, 1, 3, 20, 150, MOST_COPIES))
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
        if what <= 2:
            place = random.choice([i for i, (name, _) in enumerate(shape.variables) if name in str(shape.body)] or [0])
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

    def _other_variable(self, variables: tuple[tuple[str, Variable], ...], place: int) -> tuple[tuple[str, Variable], ...]:
        """Another value or size; both variables of a kind together now and then, so that they stay equal."""
        random, (name, before) = self.random, variables[place]
        value = random.choice((
            self._variable(name[0]), before._replace(size=self._size()), before._replace(size=before.size * 2 % 40_000), before._replace(size=before.size // 2),
            before._replace(size=max(0, before.size + random.choice((-1, 1)))),
        ))  # fmt: skip
        both = random.random() < 0.5
        return tuple((each, value if each == name or both and each[0] == name[0] else old) for each, old in variables)

    def _other_statement(self, before: Statement) -> Statement:
        random = self.random
        if before.block and random.random() < 0.5:
            place = random.randrange(len(before.block))
            inner = [*before.block]
            inner[place] = self._other_statement(inner[place])
            return before._replace(block=tuple(inner))
        if random.random() < 0.3 or not before.parts:
            copies = random.choice((before.copies * 2, before.copies // 2, before.copies * 5, 1, before.copies + 1))
            return before._replace(copies=max(1, min(copies, MOST_COPIES)))
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
