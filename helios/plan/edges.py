"""The derivation of a target's columns, from the texts of a plan's steps: equal texts give a row the same values.

A backfill by a filter replaces the rows of some slices. That is right where the script of now gives each row of the
source the same values of the filter's columns as the scripts that have written it: then no row crosses an edge.
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
"""Steps that leave rows or columns out, and change no value."""
MAKES = ("sql", "union", "aggregate", "window", "session_window")
"""Steps of which any column may come from any other: all of their text counts, and all that comes before."""
FOLLOWING = (
    "schema", "uuid", "pushed", "snapshot", "format_version", "branch", "start", "state", "span", "columns",
    "on_overwrite", "on_expired", "batch_size", "on_missing", "on_change", "on_bad_file", "isolation", "servers",
)  # fmt: skip
"""Fields of a source in a plan that say how it is followed, and not how its values are read."""
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
    """The texts that give some columns of a target.

    Attributes:
        needed: The columns, and those that they come from, in lower case.
        texts: What gives them, the last one first.
        whole: Whether any column may be needed.
        why: Why equal texts do not show that the values are equal; empty where they do.
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
    """What gives some columns of the target of a plan.

    Args:
        plan: The plan, as JSON values.
        columns: The columns.

    Examples:
        >>> steps = ["with_columns(at=ts + interval 1 hour, v=id * 2)", "where(id > 1)", "with_columns(day=date(at))"]
        >>> derived({"steps": steps, "sources": []}, ["day"]).texts
        ['day=date(at)', 'at=ts + interval 1 hour']
    """
    found = Derivation({name.lower() for name in columns})
    steps = list(plan["steps"])
    while steps and not found.why:
        text = steps.pop()
        call, _, body = text.partition("(")
        if call == "call":
            found.why = f"the function {body[:-1]} may give other values than before, and functions are not compared"
        elif call == "join":
            found.why = _joined(text, found, plan["sources"], steps)
        elif found.whole or call in MAKES:
            found.whole = True
            seedless = call == "sample" and "seed=" not in text
            found.add(text, ())
            found.why = f"{text} is another one each time" if seedless else found.why
        elif call in GIVES and RAW.search(text) is None:
            GIVES[call](found, arguments(body[:-1]))
        elif call not in KEEPS:
            found.why = f"nothing tells what {text} gives"
    return found


def _with_columns(found: Derivation, given: Sequence[str]) -> None:
    pairs = [(name.lower(), expression) for name, _, expression in (one.partition("=") for one in given)]
    given_by = {name: expression for name, expression in pairs if name in found.needed}
    found.needed -= given_by.keys()
    for name, expression in given_by.items():
        found.add(f"{name}={expression}", _names(expression))


def _cast(found: Derivation, given: Sequence[str]) -> None:
    for one in given:
        if one.partition("=")[0].lower() in found.needed:
            found.add(f"cast({one})", ())


def _rename(found: Derivation, given: Sequence[str]) -> None:
    for one in given:
        old, _, new = one.partition(" -> ")
        if new.lower() in found.needed:
            found.add(f"rename({one})", [old])


def _select(found: Derivation, given: Sequence[str]) -> None:
    for one in given:
        plain = one.strip("`").lower()
        if re.fullmatch(r"\w+|\*", plain):
            continue
        alias = re.search(r"\bas\s+`?(\w+)`?$", one, re.IGNORECASE)
        if alias is None or alias[1].lower() in found.needed:  # without an alias it may give any column
            found.add(one, _names(one[: alias.start()] if alias is not None else one))


def _explode(found: Derivation, given: Sequence[str]) -> None:
    if any(one.startswith("as_=") and one[4:].lower() in found.needed for one in given):
        found.add(f"explode({', '.join(given)})", re.findall(r"\w+", given[0]))


GIVES = {
    "with_columns": _with_columns,
    "cast": _cast,
    "rename": _rename,
    "select": _select,
    "explode": _explode,
}
"""Steps whose text says which columns they give."""


def _joined(text: str, found: Derivation, sources: Sequence[Mapping[str, Any]], before: Sequence[str]) -> str:
    """Why needed columns may come from the other side of a join, whose rows may have changed since."""
    on, _, how = text.rpartition(", on=")[2].partition(", how=")
    keys = {key.strip().lower() for key in on.split(",")}
    left = {one["name"].lower() for source in sources if source["followed"] for one in source.get("schema") or ()}
    right = {one["name"].lower() for source in sources if not source["followed"] for one in source.get("schema") or ()}
    steps = [step for step in before if not step.startswith("join(")]
    left |= {match[match.lastindex or 0].lower() for step in steps for match in NAMED.finditer(step)}
    sided = re.split(r"\W", how)[0] in ("inner", "left", "semi", "anti")
    unsure = found.needed - left | (found.needed & right - keys)
    if found.whole or unsure or not sided:
        return f"{text} may give other values than before, as the joined table is read as it is now"
    return ""


def may_move(kept: Iterable[Mapping[str, Any]], now: Mapping[str, Any], columns: Sequence[str]) -> str:
    """Why a row may have other values of some columns by a plan than by those that have written it; empty where not.

    Args:
        kept: The plans that have written rows, as JSON values.
        now: The plan of now, as JSON values.
        columns: The columns.
    """
    of_now = derived(now, columns)
    for plan in kept:
        before = derived(plan, columns)
        if why := before.why or of_now.why:
            return why
        if before.texts != of_now.texts:
            gone, come = (
                [text for text in these.texts if text not in others.texts]
                for these, others in ((before, of_now), (of_now, before))
            )
            was, shown = (", ".join(texts) or "its source" for texts in (gone, come))
            return f"{' and '.join(columns)} came of {was} before, and of {shown} now"
        changed = next(_read_otherwise(plan["sources"], now["sources"], before), None)
        if changed is not None:
            return f"{changed} is read otherwise than before"
    return of_now.why


def _read_otherwise(
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
