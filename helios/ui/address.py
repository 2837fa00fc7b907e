"""The address at which the page is served, and the token that protects the page."""

from __future__ import annotations

import os
import secrets
from dataclasses import dataclass
from ipaddress import ip_address

from helios.errors import InputError

LOOPBACK, PORT = "127.0.0.1", 4848
TOKEN = "HELIOS_UI_TOKEN"
"""The environment variable that sets the token of a page."""
SHORTEST = 16
"""The minimum number of characters of a token from the environment."""


@dataclass(frozen=True)
class Address:
    """The address at which the page is served.

    Attributes:
        host: The name or IP address of this machine under which the page is served.
        port: The port; 0 takes a free one.
        token: The token that requests must send.
        guarded: Whether every request for facts needs the token. Otherwise only a request to stop the run, or for
            rejected rows, needs the token. The files of the page never need the token.
    """

    host: str
    port: int
    token: str
    guarded: bool


def address(text: str) -> Address:
    """Parses the value of an option. The token comes from the environment, or is new.

    Args:
        text: HOST:PORT, HOST or PORT; empty for the default.

    Raises:
        InputError: The text is not an address, or no token is set for a host that other machines can reach.

    Examples:
        >>> address("").host, address(":0").port, address("[::1]:80").host, address("::1").port
        ('127.0.0.1', 0, '::1', 4848)
        >>> address("0.0.0.0:80")
        Traceback (most recent call last):
        ...
        helios.errors.InputError: 0.0.0.0:80 would serve the page to other machines, and no token is set. ...
    """
    host, port = _split(text)
    token = os.environ.get(TOKEN, "")
    if token and len(token) < SHORTEST:
        raise InputError(f"{TOKEN} has {len(token)} characters.", fix=f"use {SHORTEST} or more (openssl rand -hex 16).")
    guarded = not is_loopback(host)
    if guarded and not token:
        raise InputError(
            f"{text} would serve the page to other machines, and no token is set.",
            fix=f"set {TOKEN} to {SHORTEST} or more secret characters, or serve {LOOPBACK} and forward a port by ssh.",
        )
    return Address(host, port, token or secrets.token_urlsafe(24), guarded)


def is_loopback(host: str) -> bool:
    """True if only this machine can reach a host.

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
    has_no_port = text.endswith("]") or (text.count(":") > 1 and not text.startswith("["))  # IPv6 without a port
    host, colon, number = (text, "", "") if has_no_port else text.rpartition(":")
    if not colon:
        host, number = ("", text) if text.isdecimal() else (host or text, "")
    host = host.removeprefix("[").removesuffix("]")
    is_bad_port = bool(number) and not (number.isdecimal() and int(number) <= 65535)
    is_file = os.path.exists(text)  # in `helios run --ui pipeline.py`, the option --ui takes the script as its value
    if is_bad_port or "/" in host or " " in host or is_file:
        raise InputError(
            f"{text!r} is not an address for the page.",
            fix=f"put --ui after {text}." if is_file else f"write HOST:PORT, as in {LOOPBACK}:{PORT}.",
        )
    return host or LOOPBACK, int(number) if number else PORT
