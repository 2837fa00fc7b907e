"""Infers the Spark type of a parsed SQL expression; `unknown` wherever Spark's rule is not certain.

sqlglot's own types are not used, because they differ from Spark's: its year() is a tinyint, its 1.5 a double. Rules are
found by the name of sqlglot's class, so that this module does not import sqlglot (0.3 s).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeAlias

from helios.plan.typing import results
from helios.plan.typing.decimals import exact_type, number_type, product_of, quotient_of, remainder_of, sum_of
from helios.plan.typing.fixed import BIGINT, DATE, DOUBLE, FIXED, FIXED_CALLS, INT, STRING, TIMESTAMP
from helios.plan.typing.scope import Node, Scope, member
from helios.plan.typing.types import (
    INTEGRAL,
    NUMERIC,
    UNKNOWN,
    SparkType,
    TypeProblem,
    array,
    as_decimal,
    cast_type,
    parse_columns,
    parse_type,
    struct,
    wider,
    widest,
)

__all__ = ["Node", "kind_of", "safe_kind_of"]


def kind_of(node: Node, scope: Scope) -> SparkType:
    """The type of an expression in a scope."""
    rule = _RULES.get(type(node).__name__)
    if rule is None:
        return UNKNOWN
    return rule if isinstance(rule, SparkType) else rule(node, scope)


def safe_kind_of(node: Node, scope: Scope) -> SparkType:
    """Like `kind_of`, but `unknown` for an expression that is nested too deeply."""
    try:
        return kind_of(node, scope)
    except RecursionError:
        return UNKNOWN


Rule: TypeAlias = "SparkType | Callable[[Node, Scope], SparkType]"


def _first(node: Node, scope: Scope) -> SparkType:
    return kind_of(node.this, scope)


def _children(node: Node, scope: Scope) -> list[SparkType]:
    return [kind_of(e, scope) for e in node.expressions]


def _distinct(node: Node, scope: Scope) -> SparkType:
    return kind_of(node.expressions[0], scope) if len(node.expressions) == 1 else UNKNOWN


def _column(node: Node, scope: Scope) -> SparkType:
    parts = [part.name for part in node.parts]
    kind, rest = scope.root(parts)
    for name in rest:
        kind = member(kind, name) if kind else None
    return kind or UNKNOWN


def _dot(node: Node, scope: Scope) -> SparkType:
    if type(node.expression).__name__ != "Identifier":
        return UNKNOWN
    return member(kind_of(node.this, scope), node.expression.name) or UNKNOWN


def _bracket(node: Node, scope: Scope) -> SparkType:
    kind = kind_of(node.this, scope)
    return kind.parts[-1] if kind.name in ("array", "map") and len(node.expressions) == 1 else UNKNOWN


def _literal(node: Node, scope: Scope) -> SparkType:
    return STRING if node.is_string else number_type(node.name)


def _negated(node: Node, scope: Scope) -> SparkType:
    if type(node.this).__name__ == "Literal" and not node.this.is_string:
        return number_type(f"-{node.this.name}")
    return _numeric(node, scope)


def _numeric(node: Node, scope: Scope) -> SparkType:
    kind = _first(node, scope)
    return kind if kind.name in NUMERIC else UNKNOWN


def _integral(node: Node, scope: Scope) -> SparkType:
    kind = _first(node, scope)
    return kind if kind.name in INTEGRAL else UNKNOWN


def _bitwise(node: Node, scope: Scope) -> SparkType:
    kinds = _first(node, scope), kind_of(node.expression, scope)
    return widest(kinds) if all(k.name in INTEGRAL for k in kinds) else UNKNOWN


def _shift(node: Node, scope: Scope) -> SparkType:
    kind = _integral(node, scope)
    return wider(kind, INT) if kind != UNKNOWN else UNKNOWN


def _cast(node: Node, scope: Scope) -> SparkType:
    to = node.args["to"].sql("spark")
    # An older sqlglot parses the literal 1.5BD as such a cast, but its type has the precision of its digits.
    if to.upper() == "DECIMAL" and node.this.is_number:
        return UNKNOWN
    try:
        return cast_type(parse_type(to))
    except TypeProblem:
        return UNKNOWN


def _interval_unit(node: Node) -> str | None:
    unit = node.args.get("unit")
    return str(unit.name).upper() if unit is not None and type(unit).__name__ == "Var" else None


def _shifted_date(moment: SparkType, by: Node, scope: Scope) -> SparkType:
    """The type of a date or timestamp plus or minus an interval, or of a date plus or minus days."""
    if type(by).__name__ == "Interval":
        return results.shifted(moment, _interval_unit(by))
    return DATE if moment == DATE and kind_of(by, scope).name in ("tinyint", "smallint", "int") else UNKNOWN


def _arithmetic(combine: Callable[[SparkType, SparkType], SparkType], floating: SparkType | None = None) -> Rule:
    """The rule of a binary operator.

    Args:
        combine: The result type for two decimals.
        floating: The result type for other pairs of numbers; by default the wider type of the two.
    """

    def rule(node: Node, scope: Scope) -> SparkType:
        a, b = kind_of(node.this, scope), kind_of(node.expression, scope)
        sign = type(node).__name__
        if a.name in results.DATETIMES and sign in ("Add", "Sub"):
            return _shifted_date(a, node.expression, scope)
        if b.name in results.DATETIMES and sign == "Add":
            return _shifted_date(b, node.this, scope)
        names = {a.name, b.name}
        if not names <= set(NUMERIC):
            return UNKNOWN
        if "decimal" not in names or names & {"float", "double"}:
            return floating or wider(a, b)
        left, right = _operand(node.this, a), _operand(node.expression, b)
        return combine(left, right) if left and right else UNKNOWN

    return rule


def _operand(node: Node, kind: SparkType) -> SparkType | None:
    """The decimal type of an operand of decimal arithmetic; an integer literal has the precision of its digits."""
    while type(node).__name__ == "Paren":
        node = node.this
    if kind.name == "decimal":
        return kind
    inner = node.this if type(node).__name__ == "Neg" else node
    if type(inner).__name__ == "Literal":
        return exact_type(inner.name)
    # sqlglot parses 1L and CAST(1 AS BIGINT) alike, but Spark gives them different types.
    return None if type(node).__name__ in ("Cast", "TryCast") else as_decimal(kind)


def _sum(node: Node, scope: Scope) -> SparkType:
    return results.summed(_first(node, scope))


def _average(node: Node, scope: Scope) -> SparkType:
    return results.averaged(_first(node, scope))


def _round(node: Node, scope: Scope) -> SparkType:
    kind, digits = _numeric(node, scope), node.args.get("decimals")
    if kind.name != "decimal":
        return kind
    if digits is not None and type(digits).__name__ != "Literal":
        return UNKNOWN
    return results.rounded(kind, 0 if digits is None else int(digits.name))


def _floored(node: Node, scope: Scope) -> SparkType:
    kind = _numeric(node, scope)
    return UNKNOWN if node.args.get("decimals") is not None or kind == UNKNOWN else results.floored(kind)


def _widest(node: Node, scope: Scope) -> SparkType:
    return widest([_first(node, scope), *_children(node, scope)])


def _if(node: Node, scope: Scope) -> SparkType:
    branches = (node.args.get("true"), node.args.get("false"))
    return widest(kind_of(b, scope) for b in branches if b is not None)


def _case(node: Node, scope: Scope) -> SparkType:
    branches = [branch.args["true"] for branch in node.args["ifs"]]
    default = node.args.get("default")
    return widest(kind_of(b, scope) for b in [*branches, *([default] if default is not None else [])])


def _text(node: Node, scope: Scope) -> SparkType:
    """The type of a text function that also takes binary."""
    kind = _first(node, scope)
    return UNKNOWN if kind.name in ("binary", "unknown", "array") else STRING


def _reverse(node: Node, scope: Scope) -> SparkType:
    kind = _first(node, scope)
    return kind if kind.name == "array" else _text(node, scope)


def _piped(node: Node, scope: Scope) -> SparkType:
    # In Spark, || binds as strongly as +; in sqlglot, it does not.
    if {type(node.this).__name__, type(node.expression).__name__} & {"Add", "Sub"}:
        return UNKNOWN
    return results.concatenated((_first(node, scope), kind_of(node.expression, scope)))


def _struct(node: Node, scope: Scope) -> SparkType:
    if any(type(e).__name__ != "PropertyEQ" for e in node.expressions):
        return UNKNOWN
    return struct((e.this.name, kind_of(e.expression, scope)) for e in node.expressions)


def _array(node: Node, scope: Scope) -> SparkType:
    element = widest(_children(node, scope))
    return array(element) if element != UNKNOWN else UNKNOWN


def _map(node: Node, scope: Scope) -> SparkType:
    sides = [node.args.get("keys"), node.args.get("values")]
    if any(type(side).__name__ != "Array" for side in sides):
        return UNKNOWN
    parts = tuple(widest(_children(side, scope)) for side in sides)
    return SparkType("map", parts=parts) if UNKNOWN not in parts else UNKNOWN


def _element(node: Node, scope: Scope) -> SparkType:
    kind = _first(node, scope)
    return kind.parts[0] if kind.name == "array" else UNKNOWN


def _keys(node: Node, scope: Scope) -> SparkType:
    kind = _first(node, scope)
    return array(kind.parts[0]) if kind.name == "map" else UNKNOWN


def _collected(node: Node, scope: Scope) -> SparkType:
    kind = _first(node, scope)
    return array(kind) if kind != UNKNOWN else UNKNOWN


def _transformed(node: Node, scope: Scope) -> SparkType:
    """The type of `transform(array, x -> ...)`."""
    element, body = _element(node, scope), node.expression
    if type(body).__name__ != "Lambda":
        return UNKNOWN
    bound = dict(zip([v.name.lower() for v in body.expressions], (element, INT), strict=False))
    inner = kind_of(body.this, replace(scope, variables={**scope.variables, **bound}))
    return array(inner) if inner != UNKNOWN else UNKNOWN


def _variable(node: Node, scope: Scope) -> SparkType:
    return scope.variables.get(node.name.lower(), UNKNOWN)


def _extract(node: Node, scope: Scope) -> SparkType:
    return results.extracted(node.name, kind_of(node.expression, scope))


def _date_difference(node: Node, scope: Scope) -> SparkType:
    return BIGINT if node.args.get("unit") is not None else INT


def _timestamp_add(node: Node, scope: Scope) -> SparkType:
    kind = _first(node, scope)
    return TIMESTAMP if kind.name in ("date", "timestamp") else UNKNOWN


def _percentile(node: Node, scope: Scope) -> SparkType:
    scalar = type(node.args.get("quantile")).__name__ == "Literal"
    return DOUBLE if scalar and kind_of(node.this, scope).name in ("int", "bigint", "double") else UNKNOWN


def _parsed_json(node: Node, scope: Scope) -> SparkType:
    if type(node.expression).__name__ != "Literal":
        return UNKNOWN
    text = node.expression.name
    try:
        return parse_type(text)
    except TypeProblem:
        pass
    try:
        return struct((c.name, c.type) for c in parse_columns(text))
    except TypeProblem:
        return UNKNOWN


def _call(node: Node, scope: Scope) -> SparkType:
    """The type of a function for which sqlglot has no class."""
    rule = _CALLS.get(str(node.this).lower())
    if rule is None or isinstance(rule, SparkType):
        return rule or UNKNOWN
    return rule(node, scope) if node.expressions else UNKNOWN


def _argument(rule: Callable[[Node, Scope], SparkType]) -> Rule:
    """Applies a rule about `node.this` to the first of `node.expressions`, the arguments of an unknown call."""

    class Argument:
        def __init__(self, this: Node) -> None:
            self.this = this

    return lambda node, scope: rule(Argument(node.expressions[0]), scope)


def _time_window(node: Node, scope: Scope) -> SparkType:
    return results.window_of(kind_of(node.expressions[0], scope))


def _date_part(node: Node, scope: Scope) -> SparkType:
    if len(node.expressions) != 2 or type(node.expressions[0]).__name__ != "Literal":
        return UNKNOWN
    return results.extracted(node.expressions[0].name, kind_of(node.expressions[1], scope))


_BY_RULE: dict[Callable[[Node, Scope], SparkType], str] = {
    _first: "Paren Filter Window IgnoreNulls RespectNulls Min Max First Last FirstValue LastValue NthValue AnyValue "
    "ArgMax ArgMin Mode Lag Lead Nullif ArrayDistinct ArraySort ArrayCompact ArraySlice ArrayFilter",
    _numeric: "Abs Negative",
    _integral: "BitwiseNot BitwiseAndAgg BitwiseOrAgg BitwiseXorAgg",
    _bitwise: "BitwiseAnd BitwiseOr BitwiseXor",
    _shift: "BitwiseLeftShift BitwiseRightShift",
    _cast: "Cast TryCast",
    _widest: "Coalesce Greatest Least",
    _if: "If Nvl2",
    _text: "Substring Left Right Pad",
    _element: "ArrayMax ArrayMin Flatten Explode _ExplodeOuter ExplodeOuter",
    _collected: "ArrayAgg ArrayUniqueAgg",
}

_RULES: dict[str, Rule] = {
    **FIXED,
    **{name: rule for rule, names in _BY_RULE.items() for name in names.split()},
    "Add": _arithmetic(sum_of),
    "Anonymous": _call,
    "Array": _array,
    "Avg": _average,
    "Bracket": _bracket,
    "Case": _case,
    "Ceil": _floored,
    "Column": _column,
    "Concat": lambda node, scope: results.concatenated(_children(node, scope)),
    "DPipe": _piped,
    "DateDiff": _date_difference,
    "Distinct": _distinct,
    "Div": _arithmetic(quotient_of, floating=DOUBLE),
    "Dot": _dot,
    "Extract": _extract,
    "Floor": _floored,
    "FromJson": _parsed_json,
    "Identifier": _variable,
    "Literal": _literal,
    "MapKeys": _keys,
    "Mod": _arithmetic(remainder_of),
    "Mul": _arithmetic(product_of),
    "Neg": _negated,
    "Quantile": _percentile,
    "Reverse": _reverse,
    "Round": _round,
    "Struct": _struct,
    "Sub": _arithmetic(sum_of),
    "Sum": _sum,
    "TimestampAdd": _timestamp_add,
    "Transform": _transformed,
    "VarMap": _map,
}

_CALLS: dict[str, Rule] = {
    **FIXED_CALLS,
    "date_part": _date_part,
    "datepart": _date_part,
    "mean": _argument(_average),
    "positive": _argument(_numeric),
    "window": _time_window,
}
