"""The general reader of VNN-LIB 1.0 and 2.0: any nesting, exact arithmetic, errors with their line.

One loop over the tokens and a stack of open parentheses; a parenthesis is reduced to a term, a formula or a
declaration when it closes.  Nothing recurses, so nesting may be as deep as memory allows.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction

from verifier.errors import InputError
from verifier.property.joint import Joint, ProductTerm
from verifier.property.numbers import decimal, rational, shorten
from verifier.property.property import Property, Variable
from verifier.property.vnnlib.clauses import (
    MINUS_ONE,
    ONE,
    ZERO,
    Atom,
    Context,
    Formula,
    LinearTerm,
    assemble,
    conjunction,
    disjunction,
)
from verifier.property.vnnlib.declarations import Declarations, Relation
from verifier.property.vnnlib.sharing import Sharing

_TOKEN = re.compile(r"[()]|\[[^\[\]()]*\]|[^\s()\[\]]+|[\[\]]")
_COMMENT = re.compile(r";[^\n]*")
_SPACE = re.compile(r"\s+")
_INFIX = ("<=", ">=", "<", ">", "==", "!=")
_VERSION = re.compile(r"<([0-9]+)\.([0-9]+)>")

_IGNORED = ("set-logic", "set-info", "set-option", "check-sat", "get-model", "exit")
_UNSUPPORTED = ("not", "=>", "xor", "ite", "let", "forall", "exists", "distinct", "div", "mod", "abs", "push", "pop")


@dataclass(frozen=True, slots=True)
class _Nothing:
    """What a command, or a pair of empty parentheses, leaves behind."""

    what: str


class _FaultError(Exception):
    """Something is wrong with one child of a parenthesis (0 is its head)."""

    def __init__(self, message: str, child: int = 0) -> None:
        super().__init__(message)
        self.message, self.child = message, child


Value = str | LinearTerm | list[list[Atom]] | Variable | Relation | _Nothing
Frozen = tuple[tuple[tuple[int, Fraction], ...], Fraction]

MAX_PRODUCTS = 10_000


def _frozen(term: LinearTerm) -> Frozen:
    return tuple((v, a) for v, a in sorted(term.terms.items()) if a), term.constant


Reducer = Callable[["_Reader", list[Value], int], Value]


def parse_general(text: str) -> Property:
    """Reads a property.  Raises InputError, with the line wherever there is one."""
    return _Reader(_COMMENT.sub("", text)).read()


class _Reader:
    """The state of one reading: declarations, and the asserts so far."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.declarations = Declarations()
        self.facts: list[Atom] = []
        self.alternatives: list[Formula] = []
        self.products: dict[tuple[Frozen, Frozen], tuple[LinearTerm, LinearTerm]] = {}
        self.depth = 0
        self.commands = 0

    def line(self, offset: int | None) -> int | None:
        return None if offset is None else self.text.count("\n", 0, offset) + 1

    def read(self) -> Property:
        self._scan()
        if not self.commands:
            raise InputError("the file is empty: it holds no declaration and no assert")
        n_x, n_y = self.declarations.counts()
        if not self.facts and not self.alternatives:
            raise InputError("the file holds no assert")
        declarations = self.declarations
        if declarations.version == 1:
            context = Context(
                n_x,
                n_y,
                None,
                declarations.input_name,
                lambda i: self.line(declarations.offset_of_input(i)),
            )
            return assemble(self.facts, self.alternatives, context)
        sharing = Sharing.of(self.facts, n_x)
        products = tuple(
            ProductTerm(sharing.linear_sum(first), sharing.linear_sum(second))
            for first, second in self.products.values()
        )
        joint = Joint(tuple(declarations.networks.values()), sharing.shared, products)
        context = Context(
            sharing.count,
            n_y + len(products),
            tuple(declarations.tensors.values()),
            lambda i: declarations.input_name(sharing.declared(i)),
            lambda i: self.line(declarations.offset_of_input(sharing.declared(i))),
        )
        facts, *alternatives = sharing.renamed([[self.facts], *self.alternatives])
        found = assemble(facts[0], alternatives, context)
        return found if joint.plain else replace(found, joint=joint)

    def product(self, first: LinearTerm, second: LinearTerm) -> LinearTerm:
        """The product of two terms: a variable of its own, behind all outputs; the same one for the same product."""
        terms = sorted((_frozen(first), _frozen(second)))
        key = terms[0], terms[1]
        place = list(self.products).index(key) if key in self.products else len(self.products)
        if place == len(self.products):
            if place == MAX_PRODUCTS:
                raise _FaultError(f"there are more than {MAX_PRODUCTS} products of variables")
            self.products[key] = (LinearTerm(dict(key[0][0]), key[0][1]), LinearTerm(dict(key[1][0]), key[1][1]))
        outputs = self.declarations.counts()[1]
        return LinearTerm({2 * (outputs + place) + 1: ONE})

    def _scan(self) -> None:
        stack: list[tuple[int, list[Value]]] = []
        for match in _TOKEN.finditer(self.text):
            token = match.group()
            if token == "(":
                stack.append((match.start(), []))
            elif token == ")":
                if not stack:
                    raise InputError("there is a ')' without its '('", line=self.line(match.start()))
                offset, children = stack.pop()
                self.depth = len(stack)
                value = self._reduce(children, offset)
                if stack:
                    stack[-1][1].append(value)
            elif not stack:
                message = f"'{shorten(token)}' stands outside of all parentheses"
                raise InputError(message, line=self.line(match.start()))
            elif token[0] in "[]":
                self._index(stack[-1][1], token, match.start())
            else:
                stack[-1][1].append(token)
        if stack:
            raise InputError("this '(' is never closed", line=self.line(stack[-1][0]))

    def _index(self, children: list[Value], token: str, offset: int) -> None:
        """A shape or an index belongs to the word in front of it."""
        if not children or not isinstance(children[-1], str) or len(token) == 1:
            raise InputError(f"'{shorten(token)}' has no place here", line=self.line(offset))
        children[-1] += _SPACE.sub("", token)

    def _reduce(self, children: list[Value], offset: int) -> Value:
        if not children and self.depth > 0:
            return _Nothing("empty parentheses")  # the parameters of declare-fun; everyone else refuses them
        if not children:
            raise InputError("these parentheses are empty", line=self.line(offset))
        head = children[0]
        try:
            if self.declarations.version == 2 and len(children) == 3 and children[1] in _INFIX:
                children = [children[1], head, children[2]]  # some files of the competition write (X < Y)
                head = children[0]
            if not isinstance(head, str):
                raise _FaultError("an operator is expected after '('")
            reducer = _REDUCERS.get(head)
            if reducer is None:
                raise _FaultError(_explain(head))
            value = reducer(self, children, offset)
            if self.depth == 0 and not isinstance(value, _Nothing):
                raise _FaultError(f"'{head}' must stand inside of an assert or a declaration")
            if self.depth > 0 and isinstance(value, _Nothing):
                raise _FaultError(f"'{head}' must stand at the top level")
            self.commands += self.depth == 0
            return value
        except _FaultError as fault:
            raise InputError(fault.message, line=self._line_of_child(offset, fault.child)) from None
        except InputError as error:
            raise InputError(error.message, line=self.line(offset)) from None

    def _line_of_child(self, offset: int, child: int) -> int | None:
        """The line of a child, found by scanning its parenthesis once more."""
        depth, seen = 0, -1
        for match in _TOKEN.finditer(self.text, offset):
            token = match.group()
            depth -= token == ")"
            if depth == 1 and token[0] not in ")[]":
                seen += 1
                if seen == child:
                    return self.line(match.start())
            depth += token == "("
            if depth == 0:
                break
        return self.line(offset)

    def linear(self, children: list[Value], k: int) -> LinearTerm:
        """Child k as a term."""
        child = children[k]
        if isinstance(child, LinearTerm):
            return child
        if not isinstance(child, str):
            raise _FaultError("a variable, a number or a term is expected here", k)
        try:
            code = self.declarations.find(child)
            if code is not None:
                return LinearTerm({code: ONE})
            number = decimal(child)
        except InputError as error:
            raise _FaultError(error.message, k) from None
        if number is None:
            what = "is not declared" if child[0].isalpha() or child[0] == "_" else "is neither a variable nor a number"
            raise _FaultError(f"'{shorten(child)}' {what}", k)
        return LinearTerm({}, rational(*number))

    def formula(self, children: list[Value], k: int) -> Formula:
        """Child k as a formula."""
        child = children[k]
        if isinstance(child, list):
            return child
        if child == "true":
            return [[]]
        if child == "false":
            return []
        raise _FaultError("a condition is expected here", k)


def _explain(head: str) -> str:
    if head in _UNSUPPORTED:
        return f"the operator '{head}' is not supported"
    return f"'{shorten(head)}' is not a known operator or command"


def _sum(reader: _Reader, children: list[Value], offset: int) -> LinearTerm:
    if len(children) < 2:
        raise _FaultError(f"'{children[0]}' has no arguments")
    total = reader.linear(children, 1)
    if children[0] == "-" and len(children) == 2:
        return total.scaled(MINUS_ONE)
    for k in range(2, len(children)):
        term = reader.linear(children, k)
        total = total.add(term.scaled(MINUS_ONE) if children[0] == "-" else term)
    return total


def _product(reader: _Reader, children: list[Value], offset: int) -> LinearTerm:
    if len(children) < 2 or (children[0] == "/" and len(children) != 3):
        raise _FaultError(f"'{children[0]}' has {len(children) - 1} arguments")
    total = reader.linear(children, 1)
    for k in range(2, len(children)):
        factor = reader.linear(children, k)
        if children[0] == "/":
            if any(factor.terms.values()) or factor.constant == 0:
                raise _FaultError("only division by a constant other than zero is supported", k)
            factor = LinearTerm({}, 1 / factor.constant)
        if not any(factor.terms.values()):
            total = total.scaled(factor.constant)
        elif not any(total.terms.values()):
            total = factor.scaled(total.constant)
        elif reader.declarations.version == 2:
            total = reader.product(total, factor)
        else:
            raise _FaultError("a product of variables is not linear, which VNN-LIB 1.0 does not have", k)
    return total


def _compare(reader: _Reader, children: list[Value], offset: int) -> Formula:
    operator = children[0]
    if len(children) < 3:
        raise _FaultError(f"'{operator}' has {len(children) - 1} arguments, it needs two")
    if len(children) == 3 and operator in ("<=", ">="):
        simple = _bound(reader, children)
        if simple is not None:
            return [[simple]]
    if operator == "!=" and len(children) > 3:
        raise _FaultError("'!=' takes two arguments")
    parts = []
    for k in range(1, len(children) - 1):
        left, right = reader.linear(children, k), reader.linear(children, k + 1)
        parts.append(_relation(str(operator), left, right))
    return conjunction(parts)


def _relation(operator: str, left: LinearTerm, right: LinearTerm) -> Formula:
    def atom(low: LinearTerm, high: LinearTerm, strict: bool) -> Atom:
        return Atom.between(low.scaled(ONE), high.scaled(ONE), strict)

    if operator in ("<=", "<"):
        return [[atom(left, right, operator == "<")]]
    if operator in (">=", ">"):
        return [[atom(right, left, operator == ">")]]
    if operator == "!=":
        return [[atom(left, right, True)], [atom(right, left, True)]]
    return [[atom(left, right, False), atom(right, left, False)]]


def _bound(reader: _Reader, children: list[Value]) -> Atom | None:
    """The common case, a variable against a number, without any arithmetic."""
    left, right = children[1], children[2]
    if not isinstance(left, str) or not isinstance(right, str):
        return None
    code = reader.declarations.codes.get(left)
    if code is None or right in reader.declarations.codes:
        return None
    try:
        number = decimal(right)
    except InputError as error:
        raise _FaultError(error.message, 2) from None
    if number is None:
        return None
    if children[0] == "<=":
        return Atom(((code, ONE),), rational(*number), False)
    return Atom(((code, MINUS_ONE),), rational(-number[0], number[1]), False)


def _and(reader: _Reader, children: list[Value], offset: int) -> Formula:
    if len(children) < 2:
        raise _FaultError(f"'{children[0]}' has no arguments")
    parts = [reader.formula(children, k) for k in range(1, len(children))]
    return conjunction(parts) if children[0] == "and" else disjunction(parts)


def _assert(reader: _Reader, children: list[Value], offset: int) -> _Nothing:
    if len(children) != 2:
        raise _FaultError(f"'assert' has {len(children) - 1} arguments, it takes one condition")
    if reader.declarations.version == 2 and not reader.declarations.networks:
        raise _FaultError("an assert comes before the declaration of the network")
    formula = reader.formula(children, 1)
    if len(formula) == 1:
        reader.facts.extend(formula[0])
        reader.facts.extend([] if formula[0] else [Atom((), ZERO, False)])  # keeps (assert true) from being no assert
    else:
        reader.alternatives.append(formula)
    return _Nothing("assert")


def _declare(reader: _Reader, children: list[Value], offset: int) -> _Nothing:
    words = [child for child in children if isinstance(child, str)]
    parameters = len(children) - len(words)
    if len(words) != 3 or parameters != (children[0] == "declare-fun") or (parameters and not _empty(children[2])):
        raise _FaultError(f"a declaration reads ({children[0]} {'X_0 ()' if parameters else 'X_0'} Real)")
    reader.declarations.declare_scalar(words[1], words[2], offset)
    return _Nothing("declaration")


def _empty(child: Value) -> bool:
    return isinstance(child, _Nothing) and child.what == "empty parentheses"


def _version(reader: _Reader, children: list[Value], offset: int) -> _Nothing:
    match = _VERSION.fullmatch(children[1]) if len(children) == 2 and isinstance(children[1], str) else None
    if match is None:
        raise _FaultError("the version reads (vnnlib-version <2.0>)")
    if match.group(1) not in ("1", "2"):
        raise _FaultError(f"VNN-LIB version {shorten(match.group(1))}.{shorten(match.group(2))} is not supported")
    if reader.commands:
        raise _FaultError("the version must come first")
    reader.declarations.version = int(match.group(1))
    return _Nothing("version")


def _tensor(reader: _Reader, children: list[Value], offset: int) -> Variable:
    kind = str(children[0]).removeprefix("declare-")
    if len(children) > 3 and isinstance(children[3], str) and children[3].startswith("initialized"):
        raise _FaultError("'initialized' is not supported", 3)
    if len(children) != 3 or not isinstance(children[1], str) or not isinstance(children[2], str):
        raise _FaultError(f"a tensor is declared as ({children[0]} X float32 [1,5])")
    return reader.declarations.declare_tensor(kind, children[1], children[2], offset)


def _network(reader: _Reader, children: list[Value], offset: int) -> _Nothing:
    if len(children) < 2 or not isinstance(children[1], str):
        raise _FaultError("a network is declared as (declare-network f (declare-input ...) (declare-output ...))")
    if reader.facts or reader.alternatives or reader.products:
        raise _FaultError("all networks must be declared before the first assert")
    variables: list[Variable] = []
    relations: list[Relation] = []
    for k, child in enumerate(children[2:], start=2):
        if isinstance(child, Variable):
            variables.append(child)
        elif isinstance(child, Relation) and not variables and not relations:
            relations.append(child)
        else:
            raise _FaultError("a network holds at most one relation, then declarations of inputs and outputs", k)
    reader.declarations.declare_network(children[1], variables, next(iter(relations), None))
    return _Nothing("network")


def _relates(reader: _Reader, children: list[Value], offset: int) -> Relation:
    if len(children) != 2 or not isinstance(children[1], str):
        raise _FaultError(f"a relation to another network reads ({children[0]} f)")
    return Relation(str(children[0]), children[1])


def _refuse(reader: _Reader, children: list[Value], offset: int) -> Value:
    raise _FaultError("'declare-hidden' (conditions on hidden layers) is not supported")


def _skip(reader: _Reader, children: list[Value], offset: int) -> _Nothing:
    return _Nothing("comment")


_REDUCERS: dict[str, Reducer] = {
    **dict.fromkeys(("+", "-"), _sum),
    **dict.fromkeys(("*", "/"), _product),
    **dict.fromkeys(("<=", ">=", "<", ">", "=", "==", "!="), _compare),
    **dict.fromkeys(("and", "or"), _and),
    "assert": _assert,
    **dict.fromkeys(("declare-const", "declare-fun"), _declare),
    "vnnlib-version": _version,
    "declare-network": _network,
    **dict.fromkeys(("declare-input", "declare-output"), _tensor),
    **dict.fromkeys(("equal-to", "isomorphic-to"), _relates),
    "declare-hidden": _refuse,
    **dict.fromkeys(_IGNORED, _skip),
}
