"""Where the page is served, and who may see it."""

from __future__ import annotations

import os
import secrets
from dataclasses import dataclass
from ipaddress import ip_address

from helios.errors import InputError

LOOPBACK, PORT = "127.0.0.1", 4848
TOKEN = "HELIOS_UI_TOKEN"
"""The environment variable that gives the token of a page."""
SHORTEST = 16
"""Signs of a token at least."""


@dataclass(frozen=True)
class Address:
    """Where the page is served.

    Attributes:
        host: The address of this machine that it is served on.
        port: The port; 0 takes a free one.
        token: What a page must show.
        guarded: Whether everything needs the token, and not only a stop and rejected rows.
    """

    host: str
    port: int
    token: str
    guarded: bool


def address(text: str) -> Address:
    """The address that an option gives, with the token of the environment or a new one.

    Args:
        text: HOST:PORT, HOST or PORT; empty for the default.

    Raises:
        InputError: It is no address, or a host that others reach comes without a token.

    Examples:
        >>> address("").host, address(":0").port, address("[::1]:80").host, address("::1").port
        ('127.0.0.1', 0, '::1', 4848)
        >>> address("0.0.0.0:80")
        Traceback (most recent call last):
        ...
        helios.errors.InputError: 0.0.0.0:80 would serve the page to other machines, and no token is set. ...
    """
    host, port = _split(text)
    given = os.environ.get(TOKEN, "")
    if given and len(given) < SHORTEST:
        raise InputError(f"{TOKEN} has {len(given)} signs.", fix=f"give it {SHORTEST} or more: openssl rand -hex 16.")
    guarded = not is_loopback(host)
    if guarded and not given:
        raise InputError(
            f"{text} would serve the page to other machines, and no token is set.",
            fix=f"set {TOKEN} to a secret of {SHORTEST} signs or more, or serve {LOOPBACK} and forward it by ssh.",
        )
    return Address(host, port, given or secrets.token_urlsafe(24), guarded)


def is_loopback(host: str) -> bool:
    """True if a name or an address is of this machine alone.

    Examples:
        >>> is_loopback("127.0.0.1"), is_loopback("::1"), is_loopback("localhost"), is_loopback("example.org")
        (True, True, True, False)
    """
    if host.lower() == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def _split(text: str) -> tuple[str, int]:
    plain = text.endswith("]") or (text.count(":") > 1 and not text.startswith("["))  # IPv6 without a port
    host, colon, number = (text, "", "") if plain else text.rpartition(":")
    if not colon:
        host, number = ("", text) if text.isdecimal() else (host or text, "")
    host = host.removeprefix("[").removesuffix("]")
    wrong = bool(number) and not (number.isdecimal() and int(number) <= 65535)
    is_file = os.path.exists(text)  # `helios run --ui pipeline.py` gives the option the script
    if wrong or "/" in host or " " in host or is_file:
        raise InputError(
            f"{text!r} is no address for the page.",
            fix=f"put --ui behind {text}." if is_file else f"write HOST:PORT, as in {LOOPBACK}:{PORT}.",
        )
    return host or LOOPBACK, int(number) if number else PORT
