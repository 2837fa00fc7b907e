"""The changes of a table's columns, and the renames and drops that the user names."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import Literal, TypeAlias

from helios.errors import DeclarationError, Origin, near_miss
from helios.plan.evolution.fields import METADATA_COLUMNS, Field, Fields, Path, is_or_contains, sql_path
from helios.plan.typing.types import SparkType, quoted

Mode: TypeAlias = Literal["strict", "add_columns", "full"]


@dataclass(frozen=True, kw_only=True)
class Policy:
    """The changes that `.evolve_schema()`, `.renames()` and `.drops()` allow.

    Args:
        mode: `strict`, `add_columns` or `full`.
        renames: Pairs of the old and the new name. A nested field is named by its path: `address.zip`.
        drops: The columns and nested fields to drop. A nested field is named by its path.
        source_renames: Pairs of the former and the present name, for fields that source tables have renamed.
    """

    mode: Mode = "add_columns"
    renames: tuple[tuple[str, str], ...] = ()
    drops: tuple[str, ...] = ()
    source_renames: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, kw_only=True)
class Target:
    """The table to which the stream is written. The name of a nested column is its path, with dots.

    Args:
        name: The table's name in messages.
        partitioned_by: The source columns of the partition spec.
        sorted_by: The source columns of the sort order.
        identifiers: The identifier columns. Iceberg demands that each of them is NOT NULL.
        format_version: The table's format version; `variant` needs 3.
    """

    name: str
    fields: Fields
    partitioned_by: frozenset[str] = frozenset()
    sorted_by: frozenset[str] = frozenset()
    identifiers: frozenset[str] = frozenset()
    format_version: int = 2


@dataclass(frozen=True, kw_only=True)
class Change:
    """One change of a table's columns; its text is the clause of Spark SQL after `ALTER TABLE t`.

    Args:
        path: The path of the field just before this change, when all earlier changes are applied.
    """

    path: Path

    def apply(self, fields: Fields) -> Fields:
        """The columns after this change."""
        return _edit(fields, self.path, self.edit)

    def edit(self, old: Field) -> Field | None:
        """The field after this change; None if the change drops the field."""
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class Add(Change):
    """A new optional column, or a new optional field of a struct."""

    type: SparkType
    doc: str | None = field(default=None, compare=False)

    def __str__(self) -> str:
        return f"ADD COLUMN {sql_path(self.path)} {self.type}"

    def apply(self, fields: Fields) -> Fields:
        new = replace(Field.of(self.path[-1], self.type, True).as_added(), doc=self.doc)
        if len(self.path) == 1:
            return (*fields, new)
        return _edit(fields, self.path[:-1], lambda parent: replace(parent, parts=(*parent.parts, new)))


@dataclass(frozen=True, kw_only=True)
class Widen(Change):
    """A type promotion to a wider type."""

    type: SparkType

    def __str__(self) -> str:
        return f"ALTER COLUMN {sql_path(self.path)} TYPE {self.type}"

    def edit(self, old: Field) -> Field:
        return replace(old, type=self.type)


@dataclass(frozen=True, kw_only=True)
class Relax(Change):
    """Makes a required field optional."""

    def __str__(self) -> str:
        return f"ALTER COLUMN {sql_path(self.path)} DROP NOT NULL"

    def edit(self, old: Field) -> Field:
        return replace(old, nullable=True)


@dataclass(frozen=True, kw_only=True)
class Rename(Change):
    """A new name of a field; `new` replaces the last part of the path."""

    new: str

    def __str__(self) -> str:
        return f"RENAME COLUMN {sql_path(self.path)} TO {quoted(self.new)}"

    def edit(self, old: Field) -> Field:
        return replace(old, name=self.new)


@dataclass(frozen=True, kw_only=True)
class Drop(Change):
    """The removal of a column or nested field that the policy names."""

    def __str__(self) -> str:
        return f"DROP COLUMN {sql_path(self.path)}"

    def edit(self, old: Field) -> None:
        return None


def evolved(fields: Fields, changes: Iterable[Change]) -> Fields:
    """The columns after the changes, which are applied in order."""
    for change in changes:
        fields = change.apply(fields)
    return fields


def _edit(fields: Fields, path: Path, edit: Callable[[Field], Field | None]) -> Fields:
    """Edits the field at a path, and returns all fields. If `edit` returns None, the field is dropped."""
    head, *rest = path

    def edited(field: Field) -> Field | None:
        if field.name != head:
            return field
        return replace(field, parts=_edit(field.parts, tuple(rest), edit)) if rest else edit(field)

    return tuple(filter(None, map(edited, fields)))


# renames and drops


def named_changes(
    stream: Fields, target: Target, policy: Policy, where: Origin | None
) -> tuple[list[Change], list[DeclarationError]]:
    """The renames and drops that a table still needs, and the problems of the renames and drops."""
    named = _NamedChanges(stream, target, where)
    problem = named.policy_problem(policy)
    if problem is not None:
        return [], [problem]
    results = [named.rename(old, new) for old, new in policy.renames] + [named.drop(name) for name in policy.drops]
    changes: list[Change] = [result for result in results if isinstance(result, Change)]
    return changes, [result for result in results if isinstance(result, DeclarationError)]


class _NamedChanges:
    """Looks up the names of renames and drops in the table and in the stream. The case of names is ignored.

    `rename` and `drop` return the change or a problem. They return None if an earlier run has made the change.

    Attributes:
        table: For each path in lower case: the path as the table has it, and whether the field is fixed, see `_paths`.
        stream: The paths of the stream's fields, in lower case.
    """

    def __init__(self, stream: Fields, target: Target, where: Origin | None) -> None:
        self.target = target
        self.where = where
        self.table = {_key(path): (path, fixed) for path, fixed in _paths(target.fields)}
        self.stream = {_key(path) for path, _ in _paths(stream)}

    def problem(self, message: str, fix: str) -> DeclarationError:
        return DeclarationError(message, where=self.where, fix=fix)

    def policy_problem(self, policy: Policy) -> DeclarationError | None:
        """The problem of renames and drops that the mode does not allow, or that overlap."""
        names = [name for pair in policy.renames for name in pair] + list(policy.drops)
        if names and policy.mode != "full":
            message = f'renames and drops need .evolve_schema("full"), not .evolve_schema("{policy.mode}").'
            return self.problem(message, 'write .evolve_schema("full").')
        for first, second in combinations(names, 2):
            if _overlap(first, second):
                return self.problem(
                    f"renames and drops: {first!r} and {second!r} overlap, so a second run could not tell which of "
                    "the changes are done.",
                    "name each column once; to swap names, to rename in a chain, or to change both a struct and its "
                    "fields, use several releases.",
                )
        return None

    def rename(self, old: str, new: str) -> Rename | DeclarationError | None:
        old_field, new_field = self.table.get(old.lower()), self.table.get(new.lower())
        if old_field and new_field:
            return self.problem(
                f"renames: {self.target.name} has both {old!r} and {new!r}: a rename onto an existing column would "
                "hide its values.",
                f"choose another name than {new!r}, or drop the existing column in an earlier release.",
            )
        if old.lower() in self.stream:
            return self.problem(
                f"renames: the stream still carries {old!r}, which becomes {new!r} in {self.target.name}.",
                f'rename the column in the stream as well: rename({{"{old}": "{new}"}}).',
            )
        if old_field:
            return self._rename(old, new, *old_field)
        if new_field or new.lower() in self.stream:
            return None  # an earlier run has renamed the column, or the stream adds a column with the new name
        return self.problem(
            f"renames: {self.target.name} has no column {old!r}. {near_miss(old, self.names)}",
            "name the column as the table has it.",
        )

    def _rename(self, old: str, new: str, path: Path, fixed: bool) -> Rename | DeclarationError:
        parent, identifiers = "".join(f"{part}." for part in path[:-1]), self.target.identifiers
        name = new[len(parent) :]
        if fixed or not new.lower().startswith(parent.lower()) or "." in name or not name:
            return self.problem(
                f"renames: {old!r} cannot become {new!r}: a field cannot move out of its struct; and an array's "
                "element, a map's key or value, and a field inside a key cannot be renamed.",
                f'write both names with the same path: renames({{"{".".join(path)}": "{parent}new_name"}}).',
            )
        if not parent and name.lower() in METADATA_COLUMNS:
            return self.problem(f"renames: Iceberg reserves the name {name!r} for itself.", "choose another name.")
        # Iceberg 1.12 stores identifiers by their paths. A rename updates only the path of a top-level column.
        is_identifier_column = not parent and old.lower() in {i.lower() for i in identifiers}
        if is_or_contains(path, identifiers) and not is_identifier_column:
            return self.problem(
                f"renames: Iceberg cannot rename {old!r}: it is, or contains, a nested identifier column of "
                f"{self.target.name}.",
                f"leave {old!r} out of renames.",
            )
        return Rename(path=path, new=name)

    def drop(self, name: str) -> Drop | DeclarationError | None:
        field_of_table = self.table.get(name.lower())
        if name.lower() in self.stream:
            fix = f'drop the column from the stream as well: drop("{name}").'
            return self.problem(f"drops: the stream still carries {name!r}.", fix)
        if field_of_table is None:
            return None
        path, fixed = field_of_table
        if fixed:
            message = f"drops: {name!r} of {self.target.name} is part of an array or map, and cannot be dropped alone."
            return self.problem(message, "drop the whole array or map.")
        uses = {
            "partitioned": self.target.partitioned_by,
            "sorted": self.target.sorted_by,
            "identified": self.target.identifiers,
        }
        used = next((use for use, names in uses.items() if is_or_contains(path, names)), None)
        if used:
            fix = "leave the column out of drops, or change the table first."
            return self.problem(f"drops: the rows of {self.target.name} are {used} by {name!r}.", fix)
        return Drop(path=path)

    @property
    def names(self) -> list[str]:
        return [".".join(path) for path, _ in self.table.values()]


def _paths(
    fields: Fields, path: Path = (), container: str = "struct", in_key: bool = False
) -> Iterator[tuple[Path, bool]]:
    """The path of every field, and whether the field is fixed.

    A fixed field is the element of an array, the key or the value of a map, or a field inside a key.
    """
    for column in fields:
        column_path = (*path, column.name)
        inside_key = in_key or (container == "map" and column.name == "key")
        yield column_path, inside_key or container != "struct"
        yield from _paths(column.parts, column_path, column.type.name, inside_key)


def _key(path: Path) -> str:
    return ".".join(path).lower()


def _overlap(a: str, b: str) -> bool:
    """True if two names are the same column, or if one column contains the other."""
    first, second = f"{a.lower()}.", f"{b.lower()}."
    return first.startswith(second) or second.startswith(first)
