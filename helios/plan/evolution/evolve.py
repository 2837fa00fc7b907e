"""Finds the changes that a table needs to store a stream, and the problems if they are not allowed; without a JVM."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from helios.errors import DeclarationError, Origin
from helios.plan.evolution.changes import (
    Add,
    Change,
    Mode,
    Policy,
    Relax,
    Rename,
    Target,
    Widen,
    evolved,
    named_changes,
)
from helios.plan.evolution.fields import (
    METADATA_COLUMNS,
    Field,
    Fields,
    Path,
    cast_plan,
    from_pyiceberg,
    from_schema,
    iceberg_type,
    is_or_contains,
    lossless,
    promotions,
    sql_path,
)
from helios.plan.typing.types import UNKNOWN, VOID

__all__ = [
    "ALLOWED",
    "Change",
    "Difference",
    "Evolution",
    "Field",
    "Fields",
    "Mode",
    "Policy",
    "Target",
    "cast_plan",
    "evolve",
    "from_pyiceberg",
    "from_schema",
]


@dataclass(frozen=True, kw_only=True)
class Difference:
    """A difference between a field of the stream and of the table.

    Args:
        sign: `+` for a field only in the stream, `-` for a field only in the table, `~` for a field in both.
        path: The field.
        types: The type of the field; for a field in both, the type in the table and the type in the stream.
        stops: Whether the difference stops the run.
        why: Why the difference stops the run; empty if only the mode does not allow it.
        remedy: A step that makes the stream fit; empty if there is none.
    """

    sign: str
    path: Path
    types: str
    stops: bool = False
    why: str = ""
    remedy: str = ""


@dataclass(frozen=True, kw_only=True)
class Evolution:
    """The result of `evolve`.

    Args:
        changes: The changes of the table, in order; empty if there are problems.
        fields: The table's columns after the changes.
        differences: The differences between the stream and the table after renames and drops.
    """

    changes: tuple[Change, ...] = ()
    problems: tuple[DeclarationError, ...] = ()
    fields: Fields = ()
    differences: tuple[Difference, ...] = ()


def evolve(stream: Fields, target: Target, policy: Policy, where: Origin | None = None) -> Evolution:
    """The changes that a table needs to accept a stream.

    If a required column may be null in the stream (`Field.nullable`), `strict` stops, and `full` makes it optional.
    With `add_columns`, and if it is an identifier, the column stays required: Spark fails a batch with a null.

    Args:
        stream: The columns of the stream, whose names must be certain; `unknown` types are left to the run.

    Examples:
        >>> from helios.plan.evolution.fields import from_schema
        >>> from helios.plan.typing.schema import from_ddl
        >>> table = Target(name="a.t", fields=from_schema(from_ddl("id bigint, s struct<a: int>, day date")))
        >>> stream = from_schema(from_ddl("ID int, s struct<a: bigint, b: date>, note string, day date"))
        >>> for change in evolve(stream, table, Policy(mode="full")).changes:
        ...     print(change)
        ALTER COLUMN s.a TYPE bigint
        ADD COLUMN s.b date
        ADD COLUMN note string
        >>> print(evolve(stream, table, Policy(mode="add_columns")).problems[0])
        the stream does not fit a.t (+ only in the stream, - only in the table, ~ from the table's to the stream's):
          ~ id    bigint -> int
          ~ s.a   int -> bigint  wider than the table's
          + s.b   date
          + note  string
          1 other column is equal. Fix: write .evolve_schema("full").
    """
    named, problems = named_changes(stream, target, policy, where)
    problems += _ambiguous(stream, "the stream", where) + _ambiguous(target.fields, target.name, where)
    if problems:
        return Evolution(problems=tuple(problems), fields=target.fields)
    renamed = {change.path: (*change.path[:-1], change.new) for change in named if isinstance(change, Rename)}
    identifiers = frozenset(".".join(renamed.get((name,), (name,))) for name in target.identifiers)
    table = replace(target, fields=evolved(target.fields, named), identifiers=identifiers)
    comparison = _Comparison(table, ALLOWED[policy.mode])
    comparison.compare(stream, table.fields, (), in_key=False)
    differences = _stop_source_renames(comparison.differences, policy)
    after = evolved(table.fields, comparison.changes)
    if any(d.stops for d in differences):
        problems = [_misfit_error(differences, stream, table, policy, where)]
    problems += [
        DeclarationError(f".drops() empties {sql_path(path)} of {target.name}.", where=where, fix="drop it too.")
        for path in _empty_structs(after)
    ]
    if problems:
        return Evolution(problems=tuple(problems), fields=target.fields, differences=differences)
    return Evolution(changes=(*named, *comparison.changes), fields=after, differences=differences)


@dataclass(frozen=True)
class _Allowed:
    """The permissions of a mode.

    Attributes:
        differences: Whether stream and table may differ at all.
        widening: Whether types may be widened and required columns made optional.
    """

    differences: bool = False
    widening: bool = False


ALLOWED: Mapping[Mode, _Allowed] = {
    "strict": _Allowed(),
    "add_columns": _Allowed(differences=True),
    "full": _Allowed(differences=True, widening=True),
}
"""The permissions of each mode; each mode also allows everything that the mode before it allows."""

_STORABLE = frozenset(
    {"boolean", "int", "bigint", "float", "double", "decimal", "string", "binary", "date", "timestamp"}
    | {"timestamp_ntz", "variant", "unknown"}
)
"""The plain types that Iceberg can store, and `unknown`, which is checked at run."""
_KEY_IS_FIXED = "the keys of a map cannot be altered"


class _Comparison:
    """Compares the stream with the table field by field, and collects the differences and the changes of the table.

    In its methods, `ours` is a field of the stream and `theirs` is a field of the table.
    """

    def __init__(self, target: Target, allowed: _Allowed) -> None:
        self.target = target
        self.allowed = allowed
        self.changes: list[Change] = []
        self.differences: list[Difference] = []

    def add_difference(self, sign: str, path: Path, types: str, why: str, remedy: str = "") -> None:
        stops = bool(why) or not self.allowed.differences
        # A remedy is a declared step, which names whole columns.
        remedy = remedy if stops and len(path) == 1 and path[0].isidentifier() else ""
        self.differences.append(Difference(sign=sign, path=path, types=types, stops=stops, why=why, remedy=remedy))

    def compare(self, stream: Fields, table: Fields, path: Path, in_key: bool) -> None:
        """Compares the columns, or the fields of two structs; `in_key` is true inside the key of a map."""
        unmatched = {f.name.lower(): f for f in stream}
        for theirs in table:
            ours = unmatched.pop(theirs.name.lower(), None)
            field_path = (*path, theirs.name)
            if ours is None:
                self.only_in_table(theirs, field_path, in_key)
            else:
                self.in_both(ours, theirs, field_path, in_key)
        for ours in unmatched.values():
            self.only_in_stream(ours, (*path, ours.name), in_key)

    def only_in_table(self, theirs: Field, path: Path, in_key: bool) -> None:
        required = theirs.nullable is False and theirs.default is None
        why = _KEY_IS_FIXED if in_key else ""
        if required and not in_key:
            why = self.relax(path, "the table requires it")
        remedy = f'with_columns({theirs.name}="CAST(NULL AS {theirs.full_type})")' if not required else ""
        self.add_difference("-", path, f"{theirs.full_type}{' not null' if required else ''}", why, remedy)

    def only_in_stream(self, ours: Field, path: Path, in_key: bool) -> None:
        new = ours.as_added()
        why, remedy = _not_storable(new, self.target.format_version), f'drop("{ours.name}")'
        if why and not ours.nested:
            remedy = f'cast({ours.name}="string")'
        if len(path) == 1 and ours.name.lower() in METADATA_COLUMNS:
            why, remedy = "Iceberg reserves this name", f'rename({{"{ours.name}": "{ours.name.lstrip("_")}"}})'
        why = why or (_KEY_IS_FIXED if in_key else "")
        if not why:
            self.changes.append(Add(path=path, type=new.full_type, doc=ours.doc))
        self.add_difference("+", path, str(ours.full_type), why, remedy)

    def in_both(self, ours: Field, theirs: Field, path: Path, in_key: bool) -> None:
        same_container = ours.nested and ours.type == theirs.type
        null_why = self.null_difference(ours, theirs, path, in_key)
        type_why = self.type_difference(ours, theirs, path, in_key)
        if null_why is not None or type_why is not None:
            before, after = (str(f.type if same_container else f.full_type) for f in (theirs, ours))
            not_null = " not null" if null_why is not None else ""
            castable = type_why is not None and not (ours.nested or theirs.nested)
            remedy = f'cast({theirs.name}="{theirs.full_type}")' if castable else ""
            why = ", ".join(filter(None, (null_why, type_why)))
            self.add_difference("~", path, f"{before}{not_null} -> {after}", why, remedy)
        if same_container and ours.type.name == "struct":
            self.compare(ours.parts, theirs.parts, path, in_key)
        elif same_container:
            for our_part, their_part in zip(ours.parts, theirs.parts, strict=True):
                is_key = ours.type.name == "map" and their_part.name == "key"
                self.in_both(our_part, their_part, (*path, their_part.name), in_key or is_key)

    def null_difference(self, ours: Field, theirs: Field, path: Path, in_key: bool) -> str | None:
        """The difference in nullability; None if there is none.

        The text is the reason why the run stops. It is empty if the difference stops only the mode `strict`.
        """
        if theirs.nullable is not False or ours.nullable is False:
            return None
        if not self.allowed.differences:
            return "" if ours.nullable else None
        if ours.type != VOID and (in_key or not self.allowed.widening or is_or_contains(path, self.target.identifiers)):
            return None  # the field stays required, and Spark checks every row that it writes
        return self.relax(path, "the table refuses nulls")

    def type_difference(self, ours: Field, theirs: Field, path: Path, in_key: bool) -> str | None:
        """The difference of two types without their parts: a text or None, as `null_difference` returns it."""
        if UNKNOWN in (ours.type, theirs.type) or iceberg_type(ours.type) == theirs.type:
            return None
        plain = not (ours.nested or theirs.nested)
        if not self.allowed.differences or ours.type == VOID or (plain and lossless(ours.type, theirs.type)):
            return ""
        wide = next((w for w in promotions(theirs.type) if plain and lossless(ours.type, w)), None)
        if wide is None:
            return f"no lossless cast from {ours.type}"
        if in_key:
            return _KEY_IS_FIXED
        if not self.allowed.widening:
            return "wider than the table's"
        self.changes.append(Widen(path=path, type=wide))
        return ""

    def relax(self, path: Path, refusal: str) -> str:
        """Makes a required field optional, or returns the reason why that is not allowed; otherwise an empty text."""
        if not self.allowed.widening:
            return refusal
        if is_or_contains(path, self.target.identifiers):
            return f"{refusal}: it is an identifier column"
        self.changes.append(Relax(path=path))
        return ""


def _not_storable(new: Field, version: int) -> str:
    """Why Iceberg cannot store a new field; empty if it can."""
    if new.type == VOID:
        return "it has no type"
    if new.type.name == "struct" and not new.parts:
        return "a struct needs fields"
    if new.parts:
        reasons = ((part.name, _not_storable(part, version)) for part in new.parts)
        return next((f"{name}: {reason}" for name, reason in reasons if reason), "")
    if new.type.name == "variant" and version < 3:
        return "needs a table of format version 3"
    return "" if new.type.name in _STORABLE else "Iceberg has no such type"


def _stop_source_renames(differences: list[Difference], policy: Policy) -> tuple[Difference, ...]:
    """The differences, of which a new column that a source has renamed stops the run: the old one would become null."""
    missing = {_text(d.path).lower() for d in differences if d.sign == "-"}
    former = {new.lower(): old for old, new in policy.source_renames if old.lower() in missing}

    def stopped(difference: Difference) -> Difference:
        old = former.get(_text(difference.path).lower()) if difference.sign == "+" else None
        if old is None:
            return difference
        remedy = f'rename({{"{_text(difference.path)}": "{old}"}})' if len(difference.path) == 1 else ""
        return replace(difference, stops=True, why=f"its source has renamed {old}, which would be null", remedy=remedy)

    return tuple(map(stopped, differences))


def _text(path: Path) -> str:
    return ".".join(path)


def _ambiguous(fields: Fields, whose: str, where: Origin | None, path: Path = ()) -> list[DeclarationError]:
    """A problem for each field whose name differs at most in case from that of an earlier one."""
    problems: list[DeclarationError] = []
    seen: dict[str, str] = {}
    for field in fields:
        key, field_path = field.name.lower(), (*path, field.name)
        if key in seen:
            message = f"{whose} has two fields {sql_path((*path, seen[key]))} and {sql_path(field_path)}."
            problems.append(DeclarationError(message, where=where, fix="rename one: names are compared without case."))
        seen[key] = field.name
        problems += _ambiguous(field.parts, whose, where, field_path)
    return problems


def _empty_structs(fields: Fields, path: Path = ()) -> Iterator[Path]:
    for field in fields:
        field_path = (*path, field.name)
        if field.type.name == "struct" and not field.parts:
            yield field_path
        yield from _empty_structs(field.parts, field_path)


# the message


def _misfit_error(
    differences: tuple[Difference, ...], stream: Fields, table: Target, policy: Policy, where: Origin | None
) -> DeclarationError:
    """The error with the difference between the two schemas."""
    names = [sql_path(d.path) for d in differences]
    width, type_width = max(map(len, names)), max(len(d.types) for d in differences)
    lines = [
        f"  {d.sign} {name:<{width}}  {d.types:<{type_width}}  {d.why}".rstrip()
        for d, name in zip(differences, names, strict=True)
    ]
    touched = {d.path[0].lower() for d in differences}
    equal = sum(f.name.lower() not in touched for f in table.fields)
    lines.append(f"  {equal or 'no'} other column{' is' if equal <= 1 else 's are'} equal.")
    legend = "+ only in the stream, - only in the table, ~ from the table's to the stream's"
    message = "\n".join([f"the stream does not fit {table.name} ({legend}):", *lines])
    return DeclarationError(message, where=where, fix=_fix(differences, stream, table, policy))


def _fix(differences: tuple[Difference, ...], stream: Fields, table: Target, policy: Policy) -> str:
    """The fixes that are possible: a wider mode, a rename in the table, or steps that make the stream fit."""
    modes = list(ALLOWED)
    wider_modes = modes[modes.index(policy.mode) + 1 :]
    source_renames = policy.source_renames
    policies = (Policy(mode=mode, source_renames=source_renames) for mode in wider_modes)
    sufficient = next((wider for wider in policies if not evolve(stream, table, wider).problems), None)
    fixes = [f'write .evolve_schema("{sufficient.mode}")'] if sufficient is not None else []
    missing = {_text(d.path).lower() for d in differences if d.sign == "-"}
    added = {_text(d.path).lower() for d in differences if d.sign == "+"}
    renames = tuple((old, new) for old, new in source_renames if old.lower() in missing and new.lower() in added)
    renaming = Policy(mode="full", renames=renames, source_renames=source_renames)
    if renames and not evolve(stream, table, renaming).problems:
        names = ", ".join(f'"{old}": "{new}"' for old, new in renames)
        fixes.append(f'rename the table\'s column too with .evolve_schema("full").renames({{{names}}})')
    stopping = [d for d in differences if d.stops]
    if all(d.remedy for d in stopping) and len(stopping) <= 3:
        fixes.append("make the stream fit with " + ", ".join(d.remedy for d in stopping))
    return (", or ".join(fixes) or "give the stream the table's columns, or write another table") + "."
