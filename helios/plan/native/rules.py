"""The expressions that the columnar engine supports: one rule for each class of sqlglot, with Spark's types.

A rule returns a term whose operands have the types that Spark's analyzer gives them. An expression without a rule, or
with an uncertain type, keeps the pipeline on Spark.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from decimal import Decimal

from helios.native.program import NotNative, Term
from helios.plan.native.literals import converted, literal, typed_literal
from helios.plan.typing.scope import Node
from helios.plan.typing.types import SparkType, TypeProblem, parse_type, quoted, wider

Columns = Mapping[str, tuple[str, str]]
"""The columns before a step: for each name in lower case, the name and the type."""

SUPPORTED_TYPE = re.compile(
    r"boolean|int|bigint|float|double|string|binary|date|timestamp|timestamp_ntz|decimal\(\d+,\d+\)"
)
"""The types of columns that the engine supports."""
INTEGERS = ("int", "bigint")
NUMBERS = (*INTEGERS, "float", "double")
FLOATS = ("float", "double")
ORDERED = (*NUMBERS, "string", "date", "timestamp", "timestamp_ntz", "boolean")
PREDICATES = frozenset(
    ["EQ", "NEQ", "LT", "LTE", "GT", "GTE", "NullSafeEQ", "Is", "In", "Between", "Like", "Not", "And", "Or"]
)
OPERANDS = frozenset({"this", "expression"})
ARGUMENTS_READ = {
    "Column": frozenset({"this"}),
    "Literal": frozenset({"this", "is_string"}),
    "Between": frozenset({"this", "low", "high"}),
    "In": frozenset({"this", "expressions"}),  # not `query`
    "Cast": frozenset({"this", "to"}),
    "TryCast": frozenset({"this", "to"}),  # sqlglot parses Spark's CAST as TryCast; a real try_cast also has `safe`
    "Coalesce": frozenset({"this", "expressions"}),
    "Case": frozenset({"this", "ifs", "default"}),
    "If": frozenset({"this", "true", "false"}),
}
"""The arguments that the rules read, by the class in sqlglot; the rules of other classes read `OPERANDS`."""
MAX_IN_VALUES = 200
"""The greatest number of values in an IN list; each becomes a comparison."""
MAX_IN_FLOATS = 10
"""The greatest number of floating-point values in an IN list. Spark looks up longer lists by hash, and -0.0 and 0.0
have different hashes."""


def term(node: Node, columns: Columns) -> Term:
    """The term of a parsed expression.

    Raises:
        NotNative: A part of the expression has no rule.
    """
    name = type(node).__name__
    rule = RULES.get(name)
    # An argument that the rule does not read, such as the NOT of LIKE, would be lost.
    if rule is None or {key for key, value in node.args.items() if value} - ARGUMENTS_READ.get(name, OPERANDS):
        raise NotNative(f"{_shown(node)} is an expression that the native engine does not support")
    return rule(node, columns)


def condition(node: Node, columns: Columns) -> Term:
    """The term of a condition.

    Raises:
        NotNative: A part of the condition has no rule, or the condition is not a boolean.
    """
    result = term(node, columns)
    if result.kind != "boolean":
        raise NotNative(f"{_shown(node)} is not a boolean")
    return result


def _shown(node: Node) -> str:
    """The SQL of an expression for messages, cut to 60 characters."""
    text = " ".join(node.sql("spark").split())
    return text if len(text) <= 60 else text[:57] + "..."


def _operand(node: Node, columns: Columns) -> Term:
    """The term of an operand. A predicate needs parentheses: Spark's parser and sqlglot may group it differently."""
    if type(node).__name__ in PREDICATES:
        raise NotNative(f"{_shown(node)} stands in an expression without parentheses")
    return term(node, columns)


def _column(node: Node, columns: Columns) -> Term:
    if len(node.parts) > 1:
        raise NotNative(f"{_shown(node)} is not a plain column")
    known = columns.get(node.name.lower())
    if known is None:
        raise NotNative(f"{_shown(node)} is not one of the columns before this step")
    name, kind = known
    if not SUPPORTED_TYPE.fullmatch(kind):
        raise NotNative(f"column {quoted(name)} is a {kind}")
    return Term("col", kind, text=name)


# comparisons


def _in_common_type(left: Term, right: Term, node: Node) -> tuple[Term, Term]:
    """The two operands of a comparison, both converted to the type in which Spark compares them.

    Raises:
        NotNative: This type is not certain.
    """
    if left.op == "lit" and right.op != "lit":
        left = converted(left, right.kind) or left
    elif right.op == "lit" and left.op != "lit":
        right = converted(right, left.kind) or right
    left, right = _as_floating(left, right), _as_floating(right, left)
    if left.kind == right.kind:
        return left, right
    if left.kind in NUMBERS and right.kind in NUMBERS:
        kind = str(wider(SparkType(left.kind), SparkType(right.kind)))
        return cast(left, kind), cast(right, kind)
    raise NotNative(f"{_shown(node)} compares {left.kind} with {right.kind}")


def _comparison(op: str) -> Rule:
    def rule(node: Node, columns: Columns) -> Term:
        return _compare(op, _operand(node.this, columns), _operand(node.expression, columns), node)

    return rule


def _compare(op: str, left: Term, right: Term, node: Node) -> Term:
    left, right = _in_common_type(left, right, node)
    ordered = left.kind in ORDERED or left.kind.startswith("decimal")
    if op not in ("eq", "ne", "same") and not ordered:
        raise NotNative(f"{_shown(node)} compares values of {left.kind}")
    return Term(op, "boolean", (left, right))


def _between(node: Node, columns: Columns) -> Term:
    value = _operand(node.this, columns)
    low, high = (_operand(node.args[bound], columns) for bound in ("low", "high"))
    return Term("and", "boolean", (_compare("ge", value, low, node), _compare("le", value, high, node)))


def _in(node: Node, columns: Columns) -> Term:
    values, value = node.expressions, _operand(node.this, columns)
    most = MAX_IN_FLOATS if value.kind in FLOATS else MAX_IN_VALUES
    if not 0 < len(values) <= most:
        raise NotNative(f"{_shown(node)} is not a list of 1 to {most} values")
    comparisons = [_compare("eq", value, _operand(item, columns), node) for item in values]
    # Spark converts all values to one common type: lists of several types stay with Spark.
    if any(comparison.args[1].op != "lit" or comparison.args[0] != value for comparison in comparisons):
        raise NotNative(f"{_shown(node)} has values of another type than {value.kind}")
    return _any_of(comparisons)


def _any_of(terms: list[Term]) -> Term:
    """The terms joined by OR, as a balanced tree: a list of 200 values is only 8 levels deep."""
    if len(terms) == 1:
        return terms[0]
    half = len(terms) // 2
    return Term("or", "boolean", (_any_of(terms[:half]), _any_of(terms[half:])))


def _is(node: Node, columns: Columns) -> Term:
    if type(node.expression).__name__ != "Null":
        raise NotNative(f"{_shown(node)} is an expression that the native engine does not support")
    return Term("null", "boolean", (_operand(node.this, columns),))


def _like(node: Node, columns: Columns) -> Term:
    value, pattern = _operand(node.this, columns), node.expression
    plain = type(pattern).__name__ == "Literal" and pattern.is_string and value.kind == "string"
    match = re.fullmatch(r"(%?)([^%_\\]+)(%?)", pattern.this) if plain else None
    if match is None:
        raise NotNative(f"{_shown(node)} is not a prefix, a suffix or a substring pattern")
    ops = {("", ""): "eq", ("", "%"): "starts", ("%", ""): "ends", ("%", "%"): "contains"}
    op = ops[match[1], match[3]]
    if op == "eq":
        return Term("eq", "boolean", (value, Term("lit", "string", text=match[2])))
    return Term(op, "boolean", (value,), match[2])


# logic


def _logical(op: str) -> Rule:
    def rule(node: Node, columns: Columns) -> Term:
        return Term(op, "boolean", (condition(node.this, columns), condition(node.expression, columns)))

    return rule


def _not(node: Node, columns: Columns) -> Term:
    return Term("not", "boolean", (condition(node.this, columns),))


# arithmetic


def _arithmetic(op: str) -> Rule:
    def rule(node: Node, columns: Columns) -> Term:
        left, right = _operand(node.this, columns), _operand(node.expression, columns)
        # Spark and Polars differ in the rounding and the sign of some floating-point results.
        if left.kind not in INTEGERS or right.kind not in INTEGERS:
            raise NotNative(f"{_shown(node)} computes with {left.kind} and {right.kind}")
        # Spark combines the constants of nested sums and products, and may then overflow in another place.
        nested = _contains(left, op) or _contains(right, op)
        constant = _contains(left, "lit") or _contains(right, "lit")
        if op in REORDERED and nested and constant:
            raise NotNative(f"{_shown(node)} is an expression that Spark computes in another order")
        kind = str(wider(SparkType(left.kind), SparkType(right.kind)))
        return Term(op, kind, (cast(left, kind), cast(right, kind)))

    return rule


REORDERED = ("add", "mul")
"""The operators whose constants Spark's optimizer combines."""


def _contains(value: Term, op: str) -> bool:
    """True if a term, or a term inside it, has the operator `op`."""
    return value.op == op or any(_contains(arg, op) for arg in value.args)


def _as_floating(operand: Term, other: Term) -> Term:
    """An operand. A decimal literal beside a floating-point number is converted to double."""
    decimal = operand.op == "lit" and operand.kind.startswith("decimal")
    if decimal and operand.text is not None and other.kind in FLOATS:
        return Term("lit", "double", text=repr(float(Decimal(operand.text))))
    return operand


def _negated(node: Node, columns: Columns) -> Term:
    if type(node.this).__name__ == "Literal":
        return literal(node)
    value = _operand(node.this, columns)
    if value.kind not in INTEGERS:
        raise NotNative(f"{_shown(node)} negates a {value.kind}")
    return Term("neg", value.kind, (value,))


# values


CASTS = frozenset(
    [
        ("int", "bigint"), ("int", "float"), ("int", "double"), ("bigint", "double"), ("bigint", "int"),
        ("float", "double"), ("int", "string"), ("bigint", "string"), ("boolean", "string"),
    ]
)  # fmt: skip
"""The casts, as (from, to), that give the same values in both engines."""


def cast(value: Term, kind: str) -> Term:
    """A value cast to a type.

    Raises:
        NotNative: The cast may give different values in the two engines.
    """
    if value.kind == kind:
        return value
    if (value.kind, kind) not in CASTS:
        raise NotNative(f"a cast of {value.kind} to {kind} is a cast that the native engine does not support")
    return Term("cast", kind, (value,))


def _cast(node: Node, columns: Columns) -> Term:
    typed = typed_literal(node)
    if typed is not None:
        return typed
    try:
        kind = str(parse_type(node.args["to"].sql("spark")))
    except TypeProblem:
        raise NotNative(f"{_shown(node)} casts to a type that the native engine does not support") from None
    return cast(term(node.this, columns), kind)


def _unified(terms: list[Term], node: Node) -> list[Term]:
    """The values of CASE or COALESCE, which must have one type; nulls get the type of the others."""
    kinds = {operand.kind for operand in terms if operand.kind != "void"}
    if len(kinds) != 1:
        raise NotNative(f"{_shown(node)} chooses among {', '.join(sorted(kinds)) or 'nulls'}")
    (kind,) = kinds
    return [Term("lit", kind) if operand.kind == "void" else operand for operand in terms]


def _coalesce(node: Node, columns: Columns) -> Term:
    terms = _unified([term(operand, columns) for operand in (node.this, *node.expressions)], node)
    return Term("coalesce", terms[0].kind, tuple(terms))


def _case(node: Node, columns: Columns) -> Term:
    if node.this is not None:
        raise NotNative(f"{_shown(node)} is an expression that the native engine does not support")
    branches = [(branch.this, branch.args["true"]) for branch in node.args["ifs"]]
    return _conditional(node, branches, node.args.get("default"), columns)


def _if(node: Node, columns: Columns) -> Term:
    return _conditional(node, [(node.this, node.args["true"])], node.args.get("false"), columns)


def _conditional(node: Node, branches: list[tuple[Node, Node]], default: Node | None, columns: Columns) -> Term:
    conditions = [condition(when, columns) for when, _ in branches]
    values = [term(value, columns) for _, value in branches]
    otherwise = term(default, columns) if default is not None else Term("lit", "void")
    *values, otherwise = _unified([*values, otherwise], node)
    pairs = [part for pair in zip(conditions, values, strict=True) for part in pair]
    return Term("case", otherwise.kind, (*pairs, otherwise))


Rule = Callable[[Node, Columns], Term]

RULES: dict[str, Rule] = {
    "Column": _column,
    "Paren": lambda node, columns: term(node.this, columns),
    "Literal": lambda node, columns: literal(node),
    "Boolean": lambda node, columns: literal(node),
    "Null": lambda node, columns: literal(node),
    "EQ": _comparison("eq"),
    "NEQ": _comparison("ne"),
    "LT": _comparison("lt"),
    "LTE": _comparison("le"),
    "GT": _comparison("gt"),
    "GTE": _comparison("ge"),
    "NullSafeEQ": _comparison("same"),
    "Between": _between,
    "In": _in,
    "Is": _is,
    "Like": _like,
    "And": _logical("and"),
    "Or": _logical("or"),
    "Not": _not,
    "Add": _arithmetic("add"),
    "Sub": _arithmetic("sub"),
    "Mul": _arithmetic("mul"),
    "Neg": _negated,
    "Cast": _cast,
    "TryCast": _cast,
    "Coalesce": _coalesce,
    "Case": _case,
    "If": _if,
}
"""The rules by the name of sqlglot's class, so that this module does not import sqlglot."""
