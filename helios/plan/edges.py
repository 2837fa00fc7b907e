"""How a target's columns are computed, by the texts of a plan's steps: equal texts compute equal values.

A backfill by a filter replaces the rows of some slices. That is correct if the present script computes the same values
for the filter's columns as the scripts that wrote the rows: then no row crosses an edge of a slice.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from helios.errors import HeliosError
from helios.plan.typing.determinism import nondeterministic_function
from helios.plan.typing.expression import parse
from helios.table.step_texts import RAW, arguments

KEEPS = ("where", "expect", "sample", "dedupe", "watermark", "drop")
"""Steps that only leave rows or columns out."""
MAKES = ("sql", "union", "aggregate", "window", "session_window")
"""Steps in which any column may come from any other: their whole text counts, and so do all steps before them."""
FOLLOWING = (
    "schema", "uuid", "pushed", "snapshot", "format_version", "branch", "start", "at", "between", "state", "span",
    "columns", "on_overwrite", "on_expired", "batch_size", "on_missing", "on_change", "on_bad_file", "isolation",
    "servers",
)  # fmt: skip
"""Fields of a source in a plan that decide how it is followed, and not how its values are read."""
NAMED = re.compile(r"(\w+)=|-> (\w+)|\bas (\w+)", re.IGNORECASE)
"""The names that a step may give to columns."""


def _names(expression: str) -> set[str]:
    """The columns that an expression may name, in lower case."""
    from sqlglot import exp

    try:
        columns = list(parse(expression, "a step", None).find_all(exp.Column))
    except HeliosError:
        return {word.lower() for word in re.findall(r"\w+", expression)}
    return {part.name.lower() for column in columns for part in column.parts}


@dataclass
class Derivation:
    """The texts that compute some columns of a target.

    Attributes:
        needed: These columns, and those that they come from, in lower case.
        texts: The texts, those of the last step first.
        whole: Whether any column may be needed.
        why: Why equal texts do not prove that the values are equal; empty if they do.
    """

    needed: set[str]
    texts: list[str] = field(default_factory=list)
    whole: bool = False
    why: str = ""

    def add(self, text: str, names: Iterable[str]) -> None:
        if text not in self.texts:
            self.texts.append(text)
        self.needed |= {name.lower() for name in names}
        if (moving := nondeterministic_function(text)) is not None:
            self.why = f"{text} has {moving}"
        elif "call(" in text or (self.whole and "join(" in text):
            self.why = f"{text} may give other values than before"


def derived(plan: Mapping[str, Any], columns: Iterable[str]) -> Derivation:
    """How some columns of a plan's target are computed.

    Args:
        plan: The plan, as JSON values.
        columns: The columns.

    Examples:
        >>> steps = ["with_columns(at=ts + interval 1 hour, v=id * 2)", "where(id > 1)", "with_columns(day=date(at))"]
        >>> derived({"steps": steps, "sources": []}, ["day"]).texts
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
            derivation.why = _joined(text, derivation, plan["sources"], steps)
        elif derivation.whole or call in MAKES:
            derivation.whole = True
            seedless = call == "sample" and "seed=" not in text
            derivation.add(text, ())
            derivation.why = f"{text} takes other rows each time" if seedless else derivation.why
        elif call in GIVES and RAW.search(text) is None:
            GIVES[call](derivation, arguments(body[:-1]))
        elif call not in KEEPS:
            derivation.why = f"it is unknown what {text} computes"
    return derivation


def _with_columns(derivation: Derivation, args: Sequence[str]) -> None:
    pairs = [(name.lower(), expression) for name, _, expression in (one.partition("=") for one in args)]
    computed = {name: expression for name, expression in pairs if name in derivation.needed}
    derivation.needed -= computed.keys()
    for name, expression in computed.items():
        derivation.add(f"{name}={expression}", _names(expression))


def _cast(derivation: Derivation, args: Sequence[str]) -> None:
    for one in args:
        if one.partition("=")[0].lower() in derivation.needed:
            derivation.add(f"cast({one})", ())


def _rename(derivation: Derivation, args: Sequence[str]) -> None:
    for one in args:
        old, _, new = one.partition(" -> ")
        if new.lower() in derivation.needed:
            derivation.add(f"rename({one})", [old])


def _select(derivation: Derivation, args: Sequence[str]) -> None:
    for one in args:
        plain = one.strip("`").lower()
        if re.fullmatch(r"\w+|\*", plain):
            continue
        alias = re.search(r"\bas\s+`?(\w+)`?$", one, re.IGNORECASE)
        if alias is None or alias[1].lower() in derivation.needed:  # without an alias, it may compute any column
            derivation.add(one, _names(one[: alias.start()] if alias is not None else one))


def _explode(derivation: Derivation, args: Sequence[str]) -> None:
    if any(one.startswith("as_=") and one[4:].lower() in derivation.needed for one in args):
        derivation.add(f"explode({', '.join(args)})", re.findall(r"\w+", args[0]))


GIVES = {
    "with_columns": _with_columns,
    "cast": _cast,
    "rename": _rename,
    "select": _select,
    "explode": _explode,
}
"""Steps whose text says which columns they compute."""


def _joined(text: str, derivation: Derivation, sources: Sequence[Mapping[str, Any]], before: Sequence[str]) -> str:
    """Why needed columns may come from the other side of a join, whose rows may have changed since."""
    on, _, how = text.rpartition(", on=")[2].partition(", how=")
    keys = {key.strip().lower() for key in on.split(",")}
    left = {one["name"].lower() for source in sources if source["followed"] for one in source.get("schema") or ()}
    right = {one["name"].lower() for source in sources if not source["followed"] for one in source.get("schema") or ()}
    steps = [step for step in before if not step.startswith("join(")]
    left |= {match[match.lastindex or 0].lower() for step in steps for match in NAMED.finditer(step)}
    sided = re.split(r"\W", how)[0] in ("inner", "left", "semi", "anti")
    unsure = derivation.needed - left | (derivation.needed & right - keys)
    if derivation.whole or unsure or not sided:
        return f"{text} may give other values than before, as the joined table is read as it is now"
    return ""


def may_move(kept: Iterable[Mapping[str, Any]], now: Mapping[str, Any], columns: Sequence[str]) -> str:
    """Why a plan may compute other values of some columns for a row than the plans that wrote it; empty if it cannot.

    Args:
        kept: The plans that wrote rows, as JSON values.
        now: The present plan, as JSON values.
        columns: The columns.
    """
    present = derived(now, columns)
    for plan in kept:
        before = derived(plan, columns)
        if why := before.why or present.why:
            return why
        if before.texts != present.texts:
            removed, added = (
                [text for text in these.texts if text not in others.texts]
                for these, others in ((before, present), (present, before))
            )
            was, shown = (", ".join(texts) or "its source" for texts in (removed, added))
            return f"{' and '.join(columns)} came from {was} before, and from {shown} now"
        changed = next(_read_differently(plan["sources"], now["sources"], before), None)
        if changed is not None:
            return f"{changed} is read differently than before"
    return present.why


def _read_differently(
    before: Sequence[Mapping[str, Any]], now: Sequence[Mapping[str, Any]], of: Derivation
) -> Iterator[str]:
    """The followed sources whose values a plan reads in another way."""
    old, new = ({one["name"]: one for one in sources if one["followed"]} for sources in (before, now))
    yield from (name for name in {**old, **new} if name not in old or name not in new)
    for name in old.keys() & new.keys():
        was, is_now = (
            {one["name"].lower(): str(one["type"]) for one in source.get("schema") or ()}
            for source in (old[name], new[name])
        )
        other = {column for column in was.keys() & is_now.keys() if was[column] != is_now[column]}
        if read(old[name]) != read(new[name]) or (other if of.whole else of.needed & other):
            yield name


def read(source: Mapping[str, Any]) -> dict[str, Any]:
    """How the values of a source in a plan are read."""
    return {key: value for key, value in source.items() if key not in FOLLOWING}
