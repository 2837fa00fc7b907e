"""Reads a configuration file, and finds the line of each key."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from helios.catalog.home import CONFIG_FILE
from helios.config.tree import KeyPath, Tree
from helios.errors import ConfigError, Origin


@dataclass(frozen=True)
class Document:
    """A configuration file.

    Attributes:
        file: helios.toml or pyproject.toml; None if there is neither.
        tree: The settings; from pyproject.toml only those of `[tool.helios]`.
        line_numbers: The line number of each table and key.
        profile: The profile in which `origin` looks for a key first; None if no profile is selected.
    """

    file: Path | None
    tree: Tree
    line_numbers: Mapping[KeyPath, int]
    profile: str | None = None

    @classmethod
    def read(cls, file: Path | None) -> Document:
        """Reads a file. Raises ConfigError if it cannot be read or is not TOML, or if `tool.helios` is not a table."""
        if file is None:
            return cls(None, {}, {})
        import tomllib

        try:
            text = file.read_bytes().decode("utf-8-sig")
            tree = tomllib.loads(text)
        except OSError as error:
            raise ConfigError(f"{_display_path(file)} cannot be read: {error.strerror}.") from error
        except UnicodeDecodeError as error:
            raise ConfigError(
                f"{_display_path(file)} is not UTF-8: {error.reason}.", fix="save it as UTF-8."
            ) from error
        except tomllib.TOMLDecodeError as error:
            position = re.search(r"\(at line (\d+)", str(error))
            line = int(position[1]) if position else text.count("\n") + 1
            raise ConfigError(f"not TOML: {error}.", where=Origin(_display_path(file), line)) from error
        prefix: KeyPath = () if file.name == CONFIG_FILE else ("tool", "helios")
        for key in prefix:
            tree = tree[key]
        document = cls(file, tree, _line_numbers(text, prefix))
        if not isinstance(tree, dict):
            raise document.error((), "tool.helios must be a table.")
        return document

    def for_profile(self, name: str | None) -> Document:
        return Document(self.file, self.tree, self.line_numbers, name)

    def origin(self, path: KeyPath) -> Origin | None:
        """The line of a key in `profile`, else of the key outside of profiles, else of the nearest table around it."""
        if self.file is None:
            return None
        while path:
            for candidate in (("profiles", self.profile or "", *path), path):
                if candidate in self.line_numbers:
                    return Origin(_display_path(self.file), self.line_numbers[candidate])
            path = path[:-1]
        return None

    def error(self, path: KeyPath, what: str, fix: str | None = None) -> ConfigError:
        """An error about a key, with the line of the key."""
        where = self.origin(path)
        file_prefix = f"{_display_path(self.file)}: " if self.file and where is None else ""
        key_prefix = f"{'.'.join(path)}: " if path else ""
        return ConfigError(f"{file_prefix}{key_prefix}{what}", where=where, fix=fix)


def _display_path(file: Path) -> str:
    relative = os.path.relpath(file)
    return str(file) if relative.startswith("..") else relative


def _line_numbers(text: str, prefix: KeyPath) -> dict[KeyPath, int]:
    """Finds the line number of each table and key. Searches line by line, since tomllib returns no positions."""
    numbers: dict[KeyPath, int] = {}
    parent_numbers: dict[KeyPath, int] = {}
    table: KeyPath = ()
    open_quotes: str | None = None
    for number, line in enumerate(text.splitlines(), start=1):
        if open_quotes is not None:
            # A line with an odd number of these triple quotes ends the multi-line text.
            open_quotes = None if line.count(open_quotes) % 2 else open_quotes
            continue
        header = re.match(r"\s*(\[[^\[\]]+\])\s*(?:#.*)?$", line)
        assignment = re.match(r"""\s*((?:"[^"]*"|'[^']*'|[\w\-. \t])+?)\s*=""", line)
        if header:
            table = _key_path(header[1])
            numbers.setdefault(table, number)
            for depth in range(1, len(table)):
                parent_numbers.setdefault(table[:depth], number)
        elif assignment:
            path = (*table, *_key_path(f"{assignment[1]} = 0"))
            for depth in range(len(table) + 1, len(path) + 1):
                numbers.setdefault(path[:depth], number)
        open_quotes = next((quotes for quotes in ('"""', "'''") if line.count(quotes) % 2), None)
    prefix_length = len(prefix)
    return {
        path[prefix_length:]: number
        for path, number in {**parent_numbers, **numbers}.items()
        if path[:prefix_length] == prefix
    }


def _key_path(statement: str) -> KeyPath:
    """The path of the key in one line of TOML; empty if the line is not TOML."""
    import tomllib

    try:
        tree: Any = tomllib.loads(statement)
    except tomllib.TOMLDecodeError:
        return ()
    path: list[str] = []
    while isinstance(tree, dict) and tree:
        key, tree = next(iter(tree.items()))
        path.append(key)
    return tuple(path)
