"""Compares how two plans compute the same columns of a target, by the texts of their steps.

A backfill by a filter replaces the rows of some slices. This is correct if the current script computes the same values
for the filter's columns as the scripts that wrote the rows: then no row moves from one slice to another. Steps with the
same text compute the same values.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from helios.errors import HeliosError
from helios.plan.typing.determinism import nondeterministic_function
from helios.plan.typing.expression import parse
from helios.table.step_texts import RAW_OR_COMMENT, split_arguments

ONLY_REMOVE = ("where", "expect", "sample", "dedupe", "watermark", "drop")
"""Steps that remove rows or columns, and change no values."""
OPAQUE = ("sql", "union", "aggregate", "window", "session_window")
"""Steps in which any column may come from any other: their whole text is compared, and so are all steps before them."""
HANDLING_SETTINGS = (
    "batch_size", "format_version", "on_bad_file", "on_change", "on_expired", "on_missing", "on_overwrite", "sasl",
    "servers", "start", "tls",
)  # fmt: skip
"""Settings of a source that say how it is read, and affect neither rows nor values that were read before."""
ADDED_VALUE_SETTINGS = ("extra", "metadata", "on_bad_row", "rescued")
"""Settings of a source that affect values of columns that they add, or of bad rows."""
ROW_SETTINGS = (
    "at", "between", "branch", "columns", "isolation", "pushed", "schema", "snapshot", "span", "state", "uuid",
)  # fmt: skip
"""Fields of a source in a plan that choose its rows, and do not affect the values of a row."""
HARMLESS = (*HANDLING_SETTINGS, *ADDED_VALUE_SETTINGS)
"""Settings of a source that do not affect the rows that were read before: a change of them needs no repair."""
NOT_VALUE_SETTINGS = (*HANDLING_SETTINGS, *ROW_SETTINGS)
"""Fields of a source in a plan that do not affect how its values are read."""
NEW_NAME = re.compile(r"(\w+)=|-> (\w+)|\bas (\w+)", re.IGNORECASE)
"""A name that a step may give to a column: `name=`, `-> name` or `as name`."""


def _column_names(expression: str) -> set[str]:
    """The columns that an expression may name, in lower case."""
    from sqlglot import exp

    try:
        columns = list(parse(expression, "a step", None).find_all(exp.Column))
    except HeliosError:
        return {word.lower() for word in re.findall(r"\w+", expression)}
    return {part.name.lower() for column in columns for part in column.parts}


@dataclass
class Derivation:
    """How some columns of a target are computed.

    Attributes:
        needed: The columns, and those from which they are computed, in lower case.
        texts: The parts of steps that compute them, those of the last step first.
        needs_all: Whether the columns may be computed from any column, even from columns that are not in `needed`.
        why: Why equal texts do not prove that the values are equal; empty if they do.
    """

    needed: set[str]
    texts: list[str] = field(default_factory=list)
    needs_all: bool = False
    why: str = ""

    def add(self, text: str, names: Iterable[str]) -> None:
        """Adds the text of a step or of a part of it, and the columns that it reads."""
        if text not in self.texts:
            self.texts.append(text)
        self.needed |= {name.lower() for name in names}
        if (function := nondeterministic_function(text)) is not None:
            self.why = f"{text} has {function}"
        elif "call(" in text or (self.needs_all and "join(" in text):
            self.why = f"{text} may give other values than before"


def derivation_of(plan: Mapping[str, Any], columns: Iterable[str]) -> Derivation:
    """How some columns of a plan's target are computed; the plan has the form of JSON.

    Examples:
        >>> steps = ["with_columns(at=ts + interval 1 hour, v=id * 2)", "where(id > 1)", "with_columns(day=date(at))"]
        >>> derivation_of({"steps": steps, "sources": []}, ["day"]).texts
        ['day=date(at)', 'at=ts + interval 1 hour']
    """
    derivation = Derivation({name.lower() for name in columns})
    steps = list(plan["steps"])
    while steps and not derivation.why:
        text = steps.pop()
        call, _, body = text.partition("(")
        if call == "call":
            derivation.why = (
                f"the function {body[:-1]} may give other values than before, and functions are not compared"
            )
        elif call == "join":
            derivation.why = _why_join_differs(text, derivation, plan["sources"], steps)
        elif derivation.needs_all or call in OPAQUE:
            derivation.needs_all = True
            seedless = call == "sample" and "seed=" not in text
            derivation.add(text, ())
            if seedless:
                derivation.why = f"{text} takes other rows each time"
        elif call in COLUMN_STEPS and RAW_OR_COMMENT.search(text) is None:
            COLUMN_STEPS[call](derivation, split_arguments(body[:-1]))
        elif call not in ONLY_REMOVE:
            derivation.why = f"it is unknown what {text} computes"
    return derivation


def _with_columns(derivation: Derivation, args: Sequence[str]) -> None:
    pairs = [(name.lower(), expression) for name, _, expression in (arg.partition("=") for arg in args)]
    computed = {name: expression for name, expression in pairs if name in derivation.needed}
    derivation.needed -= computed.keys()
    for name, expression in computed.items():
        derivation.add(f"{name}={expression}", _column_names(expression))


def _cast(derivation: Derivation, args: Sequence[str]) -> None:
    for arg in args:
        if arg.partition("=")[0].lower() in derivation.needed:
            derivation.add(f"cast({arg})", ())


def _rename(derivation: Derivation, args: Sequence[str]) -> None:
    for arg in args:
        old, _, new = arg.partition(" -> ")
        if new.lower() in derivation.needed:
            derivation.add(f"rename({arg})", [old])


def _select(derivation: Derivation, args: Sequence[str]) -> None:
    for arg in args:
        plain = arg.strip("`").lower()
        if re.fullmatch(r"\w+|\*", plain):
            continue
        alias = re.search(r"\bas\s+`?(\w+)`?$", arg, re.IGNORECASE)
        if alias is None or alias[1].lower() in derivation.needed:  # without an alias, it may compute any column
            derivation.add(arg, _column_names(arg[: alias.start()] if alias is not None else arg))


def _explode(derivation: Derivation, args: Sequence[str]) -> None:
    if any(arg.startswith("as_=") and arg[4:].lower() in derivation.needed for arg in args):
        derivation.add(f"explode({', '.join(args)})", re.findall(r"\w+", args[0]))


COLUMN_STEPS = {
    "with_columns": _with_columns,
    "cast": _cast,
    "rename": _rename,
    "select": _select,
    "explode": _explode,
}
"""Steps whose text says which columns they compute, each with the function that adds the texts of needed columns."""


def _why_join_differs(
    text: str, derivation: Derivation, sources: Sequence[Mapping[str, Any]], before: Sequence[str]
) -> str:
    """Why a join may give needed columns other values than before: the right side's rows may have changed.

    Empty if the needed columns all come from the left side.
    """
    on, _, how = text.rpartition(", on=")[2].partition(", how=")
    keys = {key.strip().lower() for key in on.split(",")}
    left = {name for source in sources if source["followed"] for name in _schema_types(source)}
    right = {name for source in sources if not source["followed"] for name in _schema_types(source)}
    steps = [step for step in before if not step.startswith("join(")]
    left |= {match[match.lastindex or 0].lower() for step in steps for match in NEW_NAME.finditer(step)}
    keys_come_from_left = re.split(r"\W", how)[0] in ("inner", "left", "semi", "anti")
    maybe_from_right = derivation.needed - left | (derivation.needed & right - keys)
    if derivation.needs_all or maybe_from_right or not keys_come_from_left:
        return f"{text} may give other values than before, as the joined table is read as it is now"
    return ""


def why_values_may_differ(kept: Iterable[Mapping[str, Any]], now: Mapping[str, Any], columns: Sequence[str]) -> str:
    """Why a plan may compute other values for some columns of a row than the plans that wrote the row; or empty."""
    present = derivation_of(now, columns)
    for plan in kept:
        before = derivation_of(plan, columns)
        if why := before.why or present.why:
            return why
        if before.texts != present.texts:
            removed = [text for text in before.texts if text not in present.texts]
            added = [text for text in present.texts if text not in before.texts]
            old_origin, new_origin = (", ".join(texts) or "its source" for texts in (removed, added))
            return f"{' and '.join(columns)} came from {old_origin} before, and from {new_origin} now"
        changed = next(_read_differently(plan["sources"], now["sources"], before), None)
        if changed is not None:
            return f"{changed} is read differently than before"
    return present.why


def _read_differently(
    before: Sequence[Mapping[str, Any]], now: Sequence[Mapping[str, Any]], derivation: Derivation
) -> Iterator[str]:
    """Yields the followed sources that only one plan has, or whose needed values the two plans read differently."""
    old, new = ({source["name"]: source for source in sources if source["followed"]} for sources in (before, now))
    yield from (name for name in {**old, **new} if name not in old or name not in new)
    for name in old.keys() & new.keys():
        old_types, new_types = _schema_types(old[name]), _schema_types(new[name])
        retyped = {column for column in old_types.keys() & new_types.keys() if old_types[column] != new_types[column]}
        needed_retyped = retyped if derivation.needs_all else derivation.needed & retyped
        if value_settings(old[name]) != value_settings(new[name]) or needed_retyped:
            yield name


def _schema_types(source: Mapping[str, Any]) -> dict[str, str]:
    """The types of a source's columns, by their names in lower case."""
    return {column["name"].lower(): str(column["type"]) for column in source.get("schema") or ()}


def value_settings(source: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a source in a plan that affect how its values are read."""
    return {key: value for key, value in source.items() if key not in NOT_VALUE_SETTINGS}
