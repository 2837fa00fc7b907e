"""Works on trees of settings: merges a profile into the base, and replaces variables such as `${NAME}`."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from helios.errors import ConfigError

KeyPath: TypeAlias = tuple[str, ...]
Tree: TypeAlias = dict[str, Any]

_VARIABLE = re.compile(r"\$(?P<escaped>\$\{)|\$\{(?P<body>[^}]*)(?P<end>\}?)")
_BODY = re.compile(r"(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?P<default>:-.*)?", re.DOTALL)


def merge(base: Tree, overrides: Tree) -> Tree:
    """Merges a profile's overrides into the base: tables are merged key by key, and other values are replaced.

    A table of the overrides with another `type` replaces the whole table of the base, since the settings of the base
    belong to the old type.

    Examples:
        >>> merge({"spark": {"master": "local[*]", "conf": {"a": "1"}}}, {"spark": {"conf": {"b": "2"}}})
        {'spark': {'master': 'local[*]', 'conf': {'a': '1', 'b': '2'}}}
    """
    new_type = overrides.get("type")
    if isinstance(new_type, str) and base.get("type", new_type) != new_type:
        return overrides
    merged = dict(base)
    for key, value in overrides.items():
        base_value = merged.get(key)
        merged[key] = merge(base_value, value) if isinstance(base_value, dict) and isinstance(value, dict) else value
    return merged


def expand(value: Any, env: Mapping[str, str], error: Callable[..., ConfigError], path: KeyPath = ()) -> Any:
    """Replaces `${NAME}` and `${NAME:-default}` by environment variables in every text, and `$${` by a literal `${`.

    As in a shell, the default is also used if the variable is empty. The value of a variable is not expanded again.

    Raises:
        ConfigError: A variable is not set, or a `${` does not begin a variable.
    """
    if isinstance(value, dict):
        return {key: expand(inner, env, error, (*path, key)) for key, inner in value.items()}
    if isinstance(value, list):
        return [expand(inner, env, error, path) for inner in value]
    if not isinstance(value, str):
        return value

    def replace(match: re.Match[str]) -> str:
        if match["escaped"]:
            return "${"
        body = _BODY.fullmatch(match["body"])
        if not match["end"] or body is None or "${" in (body["default"] or ""):
            raise error(
                path,
                "contains a '${' that does not begin a variable.",
                fix="write ${NAME} or ${NAME:-default}; for a literal ${, write $${.",
            )
        name, default = body["name"], body["default"]
        if default is not None:
            return env.get(name) or default.removeprefix(":-")
        if name not in env:
            raise error(
                path,
                f"the environment variable {name!r} is not set.",
                fix=f"set {name}, or give a default: ${{{name}:-value}}.",
            )
        return env[name]

    return _VARIABLE.sub(replace, value)
