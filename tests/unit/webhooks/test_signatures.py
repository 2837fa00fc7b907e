"""Who may deliver."""

from __future__ import annotations

import base64
import hashlib
import hmac
from pathlib import Path
from typing import Any

import pytest

from helios import Webhook
from helios.errors import DeclarationError
from helios.model.values import Secret
from helios.sources.webhook.signatures import Refused, github, key_of, standard

pytestmark = pytest.mark.promise("webhook")

KEY = b"helios-key"
SECRET = Secret("whsec_" + base64.b64encode(KEY).decode())
NOW = 1_800_000_000.0
BODY = b'{"id": 1}'


def signed(delivery: str = "msg_1", at: float = NOW, body: bytes = BODY, key: bytes = KEY) -> dict[str, str]:
    digest = hmac.digest(key, f"{delivery}.{int(at)}.".encode() + body, hashlib.sha256)
    return {
        "webhook-id": delivery,
        "webhook-timestamp": str(int(at)),
        "webhook-signature": "v1," + base64.b64encode(digest).decode(),
    }


def test_the_example_of_the_specification() -> None:
    # from standardwebhooks.com's reference implementations' tests
    headers = {
        "webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
        "webhook-timestamp": "1614265330",
        "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
    }
    secret = Secret("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
    assert standard(headers, b'{"test": 2432232314}', [secret], 1614265330.0) == "msg_p5jXN8AQM9LWM0D4loKWxJek"


def test_any_of_several_secrets_and_signatures() -> None:
    headers = signed()
    headers["webhook-signature"] = "v1a,nonsense v1,AAAA " + headers["webhook-signature"]
    assert standard(headers, BODY, [Secret("another"), SECRET], NOW) == "msg_1"


@pytest.mark.parametrize("away", [-299, 0, 299])
def test_five_minutes_either_way(away: int) -> None:
    assert standard(signed(at=NOW + away), BODY, [SECRET], NOW) == "msg_1"


@pytest.mark.parametrize(
    ("headers", "reason"),
    [
        ({}, "no header webhook-id, webhook-timestamp, webhook-signature"),
        ({**signed(), "webhook-signature": ""}, "no header webhook-signature"),
        (signed(at=NOW - 301), "5 minutes away"),
        (signed(at=NOW + 301), "5 minutes away"),
        ({**signed(), "webhook-timestamp": "soon"}, "not a number"),
        ({**signed(), "webhook-timestamp": "²"}, "not a number"),
        (signed(key=b"another"), "does not fit"),
        ({**signed(), "webhook-id": "msg_2"}, "does not fit"),
        ({**signed(), "webhook-signature": "v1,ü"}, "does not fit"),
        ({**signed(), "webhook-timestamp": str(int(NOW) + 1)}, "does not fit"),
    ],
)
def test_refused(headers: dict[str, str], reason: str) -> None:
    with pytest.raises(Refused, match=reason) as refused:
        standard(headers, BODY, [SECRET], NOW)
    assert refused.value.status == 401


def test_another_body_is_refused() -> None:
    with pytest.raises(Refused, match="does not fit"):
        standard(signed(), BODY + b" ", [SECRET], NOW)


def test_githubs_own_example() -> None:
    # from GitHub's documentation, "Testing the webhook payload validation"
    headers = {
        "x-github-delivery": "72d3162e",
        "x-hub-signature-256": "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17",
    }
    assert github(headers, b"Hello, World!", [Secret("It's a Secret to Everybody")], NOW) == "72d3162e"
    with pytest.raises(Refused, match="does not fit"):
        github(headers, b"Hello, World?", [Secret("It's a Secret to Everybody")], NOW)
    with pytest.raises(Refused, match="no header X-Hub-Signature-256"):
        github({"x-github-delivery": "1"}, b"", [SECRET], NOW)


def test_a_secret_that_is_not_base64() -> None:
    with pytest.raises(ValueError, match="must continue in base64"):
        key_of(Secret("whsec_not base64"))


@pytest.mark.parametrize("secret", ["", "whsec_", Secret(""), Secret("whsec_"), ["x", Secret("")]])
def test_an_empty_secret_is_refused(secret: Any) -> None:
    with pytest.raises(DeclarationError, match="the secret is empty"):
        Webhook.source("/o", secret=secret, schema="id long")


def test_each_path_has_a_folder_beside_the_others() -> None:
    one, below = (Path(str(Webhook.source(path, secret="x", schema="id long").folder)) for path in ("/o", "/o/eu"))
    assert one.parent == below.parent
    assert one != below
