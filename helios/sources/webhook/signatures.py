"""Verifies the HMAC signatures of deliveries, in the forms of Standard Webhooks and of GitHub.

Sources: the Standard Webhooks specification (standardwebhooks.com, "Verifying webhooks"), and GitHub's documentation,
"Validating webhook deliveries".
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from helios.model.values import Secret

TOLERANCE = 300.0
"""Seconds that the time of a delivery may lie before or after now, as Standard Webhooks recommends."""

PREFIX = "whsec_"
"""The prefix of a Standard Webhooks secret; the rest is base64."""


@dataclass(frozen=True)
class Refused(Exception):
    """A delivery that is not accepted, with the HTTP status and the reason for the sender."""

    status: int
    reason: str


def standard(headers: Mapping[str, str], body: bytes, secrets: Sequence[Secret], now: float) -> str:
    """Verifies a delivery by the rules of Standard Webhooks, and returns its id.

    The signed text is `id.timestamp.body`.

    Args:
        headers: The headers, by names in lower case.
        body: The body, as it was received.
        secrets: The secrets. Any of them may have signed the delivery, so that secrets can be rotated.
        now: The current time, in seconds since 1970.

    Raises:
        Refused: A header is missing, the time of the delivery is more than five minutes away from `now`, or no secret
            produces its signature.
    """
    fields = {name: headers.get(f"webhook-{name}", "") for name in ("id", "timestamp", "signature")}
    missing = [f"webhook-{name}" for name, value in fields.items() if not value]
    if missing:
        raise Refused(401, f"no header {', '.join(missing)}")
    if not fields["timestamp"].isascii() or not fields["timestamp"].isdigit() or len(fields["timestamp"]) > 12:
        raise Refused(401, "webhook-timestamp is not a number of seconds since 1970")
    if abs(now - int(fields["timestamp"])) > TOLERANCE:
        raise Refused(401, f"webhook-timestamp is more than {TOLERANCE / 60:.0f} minutes away from this server's clock")
    signed = b".".join((fields["id"].encode(), fields["timestamp"].encode(), body))
    signatures = [
        signature.removeprefix("v1,") for signature in fields["signature"].split(" ") if signature.startswith("v1,")
    ]
    for secret in secrets:
        expected = base64.b64encode(hmac.digest(key_of(secret), signed, hashlib.sha256)).decode()
        if any(_equal(expected, signature) for signature in signatures):
            return fields["id"]
    raise Refused(401, "webhook-signature does not fit")


def github(headers: Mapping[str, str], body: bytes, secrets: Sequence[Secret], now: float) -> str:
    """Verifies a delivery by GitHub's rules, and returns its id. The signature is the hexadecimal digest of the body.

    GitHub signs neither the id nor a time. So anybody who has seen a delivery can send it again with another id.

    Raises:
        Refused: A header is missing, or no secret produces the signature.
    """
    delivery, signature = headers.get("x-github-delivery", ""), headers.get("x-hub-signature-256", "")
    if not delivery or not signature:
        raise Refused(401, f"no header {'X-Hub-Signature-256' if delivery else 'X-GitHub-Delivery'}")
    for secret in secrets:
        expected = hmac.digest(secret.reveal().encode(), body, hashlib.sha256).hex()
        if _equal(f"sha256={expected}", signature):
            return delivery
    raise Refused(401, "X-Hub-Signature-256 does not fit")


FORMS = {"standard": standard, "github": github}
"""The functions that verify a delivery, by the name that `.signed(...)` takes."""


def key_of(secret: Secret) -> bytes:
    """The key of a secret of Standard Webhooks: the base64 text after `whsec_`, decoded; otherwise the text itself.

    Examples:
        >>> key_of(Secret("whsec_aGVsaW9z")), key_of(Secret("plain"))
        (b'helios', b'plain')

    Raises:
        ValueError: The text after `whsec_` is not base64.
    """
    text = secret.reveal()
    if not text.startswith(PREFIX):
        return text.encode()
    try:
        return base64.b64decode(text.removeprefix(PREFIX), validate=True)
    except binascii.Error:
        raise ValueError(f"a secret that begins with {PREFIX} must continue in base64, and this one does not") from None


def _equal(expected: str, received: str) -> bool:
    return hmac.compare_digest(expected.encode(), received.encode("utf-8", "surrogateescape"))
