"""Defines, checks and completes the settings of catalogs and storages."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from ipaddress import ip_address
from pathlib import Path
from typing import NamedTuple, TypeAlias
from urllib.parse import urlsplit

from helios.errors import near_miss
from helios.model.values import Secret

Value: TypeAlias = str | Secret
Setting: TypeAlias = str | Secret | bool | tuple[str, ...]
Pairs: TypeAlias = tuple[tuple[str, Setting], ...]
Settings: TypeAlias = Mapping[str, object]
Fault: TypeAlias = tuple[str | None, str]
"""The name of the wrong setting (None if it is not a single one), and a sentence that says what is wrong."""

# At these characters, SQLAlchemy, PyIceberg and SQLite's driver cut or decode a path, each in its own way.
UNUSABLE_IN_PATHS = "?#%"
HTTP = ("http", "https")
_FLAGS = {"true": True, "false": False}


class Key(NamedTuple):
    """One setting of a type of catalog or storage.

    Args:
        name: The name of the factory's argument, and the key in helios.toml.
        about: A description for the docs.
        secret: Whether the value becomes a `Secret`.
        path: Whether the value is a local path, which is made absolute where it is declared.
        flag: Whether the value is true or false.
        many: Whether the value may be a list.
        schemes: The allowed schemes of a URL; empty if the value is not a URL.
        default: Computes the default from the catalog's name and the project's folder.
    """

    name: str
    about: str
    required: bool = False
    secret: bool = False
    path: bool = False
    flag: bool = False
    many: bool = False
    schemes: tuple[str, ...] = ()
    default: Callable[[str, Path], str] | None = None


def settings_problem(keys: Iterable[Key], settings: Settings, final: bool = True) -> Fault | None:
    """The first problem with the settings; None if there is none.

    Args:
        final: Whether the settings are complete. If not, settings may be missing or contain `${NAME}`.

    Examples:
        >>> settings_problem([Key("path", "a folder")], {"pth": "/data"})
        ('pth', "unknown key 'pth'. Did you mean 'path'?")
    """
    known = {key.name: key for key in keys}
    for name, value in settings.items():
        if name not in known:
            return name, f"unknown key {name!r}. {near_miss(name, known)}"
        value_problem = _value_problem(known[name], value, final)
        if value_problem:
            return name, f"{name} {value_problem}"
    missing = next((key.name for key in known.values() if key.required and key.name not in settings), None)
    return (None, f"it needs {missing}.") if final and missing else None


def _value_problem(key: Key, value: object, final: bool) -> str | None:
    if key.flag:
        variable = not final and "$" in str(value)
        valid = isinstance(value, bool) or (isinstance(value, str) and (value in _FLAGS or variable))
        return None if valid else f"must be true or false, not {value!r}."
    if isinstance(value, (list, tuple)) and key.many:
        if not value:
            return "must not be an empty list."
        problems = (_value_problem(key, item, final) for item in value)
        return next(filter(None, problems), None)
    if not isinstance(value, (str, Secret)):
        return f"must be text{' or a list of texts' if key.many else ''}, not {type(value).__name__}."
    text = value.reveal() if isinstance(value, Secret) else value
    if not text.strip():
        return "must not be empty."
    if key.path and text.lstrip().startswith("{"):
        return "must be the path of a file, not its content."
    unusable = next((c for c in text if c in UNUSABLE_IN_PATHS), None) if key.path else None
    if unusable:
        return f"{text!r} must not contain {unusable!r}: PyIceberg and SQLite's driver read it as a URL."
    return _url_problem(text, key.schemes) if key.schemes and (final or "${" not in text) else None


def _url_problem(text: str, schemes: tuple[str, ...]) -> str | None:
    try:
        parts = urlsplit(text)
        host, user = parts.hostname, parts.username or parts.password
        _ = parts.port  # raises ValueError if the port is invalid
    except ValueError as error:
        return "is not a URL." if "@" in text else f"is not a URL: {error}."
    wrong_scheme = parts.scheme not in schemes or not host
    if user is not None or (wrong_scheme and "@" in text):
        return "must not contain a user or a password: it would be shown. Give them in their own settings."
    if wrong_scheme:
        return f"{text!r} is not a URL that begins with {' or '.join(f'{scheme}://' for scheme in schemes)}."
    return None


def completed_settings(
    keys: Iterable[Key], settings: Settings, name: str, base_folder: Path, project_folder: Callable[[], Path]
) -> Pairs:
    """Completes settings: adds defaults, makes paths absolute, and wraps secrets. The settings are in the keys' order.

    Args:
        settings: The given settings, which are checked already.
        base_folder: The folder to which relative paths are relative.
        project_folder: Returns the project's folder; called only if a default needs it.
    """
    pairs: list[tuple[str, Setting]] = []
    for key in keys:
        value = settings.get(key.name)
        if value is None:
            if key.default is None:
                continue
            value = key.default(name, project_folder())
        pairs.append((key.name, _converted(key, value, base_folder)))
    return tuple(pairs)


def _converted(key: Key, value: object, base_folder: Path) -> Setting:
    if key.flag:
        return value if isinstance(value, bool) else _FLAGS[str(value)]
    if isinstance(value, (list, tuple)):
        # A list with one address becomes that address, so that equal declarations are equal values.
        return tuple(map(str, value)) if len(value) > 1 else str(value[0])
    if isinstance(value, Secret):
        return value
    text = str(value)
    if key.path:
        text = os.path.abspath(base_folder / Path(text).expanduser())
    return Secret(text) if key.secret else text


def unencrypted_address(settings: Settings, *names: str) -> Fault | None:
    """The problem with an `http://` address of another machine; None if there is none, or if `allow_http` is set.

    Examples:
        >>> unencrypted_address({"uri": "http://catalog:8181"}, "uri")[0]
        'uri'
        >>> unencrypted_address({"uri": "http://127.0.0.1:8181"}, "uri")
    """
    if settings.get("allow_http") in (True, "true"):
        return None
    for name in names:
        value = settings.get(name)
        for text in value if isinstance(value, (list, tuple)) else (value,):
            url = urlsplit(text) if isinstance(text, str) else None
            if url is not None and url.scheme == "http" and not is_loopback(url.hostname or ""):
                return name, (
                    f"{name} {text!r} is not encrypted, and anyone on the network could read the credentials. "
                    "Use https://, or set allow_http if the network is your own."
                )
    return None


def is_loopback(host: str) -> bool:
    """True if a host is this machine.

    Examples:
        >>> is_loopback("localhost"), is_loopback("127.0.0.9"), is_loopback("::1"), is_loopback("catalog")
        (True, True, True, False)
    """
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def as_conf(settings: Mapping[str, Setting | None]) -> dict[str, Value]:
    """Settings as texts of a conf: a flag becomes "true" or "false", a list is joined by commas, None is left out."""
    texts: dict[str, Value] = {}
    for key, value in settings.items():
        if isinstance(value, bool):
            texts[key] = str(value).lower()
        elif isinstance(value, tuple):
            texts[key] = ",".join(value)
        elif value is not None:
            texts[key] = value
    return texts
