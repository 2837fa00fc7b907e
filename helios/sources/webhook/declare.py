"""`Webhook.source(...)`: a source of deliveries over HTTP, which are durable before they are acknowledged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import ClassVar, Literal, Self, TypeAlias
from urllib.parse import quote

from helios.errors import DeclarationError
from helios.model.arguments import columns_ddl, count, metadata_columns, one_of, text
from helios.model.flow import Source
from helios.model.values import Secret, caller, duration, show_seconds
from helios.sources.files.declare import EXTRA, ON_BAD_ROW, Extra, FilesSource, OnBadRow

Signed: TypeAlias = Literal["standard", "github"]
SIGNED = ("standard", "github")

Fractions: TypeAlias = Literal["refuse", "truncate"]
FRACTIONS = ("refuse", "truncate")

MAX_BODY_BYTES = 16_000_000
"""The largest value of `max_body_bytes`: Spark's JSON parser accepts at most 20 million characters."""

ID, RECEIVED = "_webhook_id", "_webhook_received_at"
"""The fields of a stored delivery in addition to the fields of its body: its id, and the time of receipt."""

METADATA: Mapping[str, str] = {ID: "string", RECEIVED: "timestamp"}
"""The columns that `.with_metadata` can add, with their types."""

LOOPBACK = ("127.0.0.1", "::1", "localhost")
"""The hosts that only this machine can reach."""


@dataclass(frozen=True, kw_only=True)
class WebhookSource(Source):
    """Deliveries to a path of an HTTP server. `Webhook.source` creates it.

    Attributes:
        path: The path of the URL.
        secrets: The secrets; any of them may sign a delivery. Without secrets, unsigned deliveries are accepted.
        form: The form of the signatures: "standard" or "github".
        host: The host on which the receiver listens.
        port: The port on which the receiver listens.
        folder: The folder in which deliveries wait until a run has committed them.
        extra: The policy for fields that the schema does not have.
        bad_row: The policy for stored deliveries that do not fit the columns when they are read.
        metadata: The columns of `METADATA` that are added.
        fraction: The policy for timestamp digits beyond microseconds.
        max_body_bytes: The limit of a body.
        max_waiting_bytes: The limit of the stored deliveries that no run has committed.
        window: Seconds in which a second delivery with the same id is a duplicate.
        poll: Seconds between two looks for stored deliveries.
    """

    kind: ClassVar[str] = "webhook"

    path: str
    secrets: tuple[Secret, ...] = field(repr=False)
    form: str = "standard"
    host: str = "127.0.0.1"
    port: int = 8080
    folder: str
    extra: str = "fail"
    bad_row: str = "fail"
    metadata: tuple[str, ...] = ()
    fraction: str = "refuse"
    max_body_bytes: int = 1_000_000
    max_waiting_bytes: int = 10_000_000_000
    window: float = 86_400.0
    poll: float | None = 1.0

    @property
    def ledger_name(self) -> str:
        return f"webhook:{self.path}"

    @property
    def quarantining_calls(self) -> tuple[str, ...]:
        return ('on_bad_row("quarantine")',) if self.bad_row == "quarantine" else ()

    def incremental(self, poll: float | str | timedelta = 1, *, max_files: int | None = None) -> Self:
        """Sets how deliveries are divided into batches. A webhook is followed even without this call.

        Args:
            poll: How often to look for stored deliveries: seconds, text such as "30s", or a timedelta.
            max_files: The most segments of one batch; a segment is a file of stored deliveries.
        """
        return replace(self, poll=duration(poll, "poll"), max_files=count(max_files, "max_files"))

    def signed(self, form: Signed) -> Self:
        """Sets how deliveries are signed.

        Args:
            form: "standard" (default): Standard Webhooks, an HMAC of id, time and body, at most five minutes old.
                "github": an HMAC of the body, without id and time.
        """
        return replace(self, form=one_of(form, SIGNED, "signed"))

    def listen(self, address: str) -> Self:
        """Sets the address on which the receiver listens.

        Args:
            address: Host and port, such as "0.0.0.0:8080"; by default "127.0.0.1:8080". The receiver has no TLS: put a
                proxy in front.

        Raises:
            DeclarationError: The address has no port, or other machines can reach it and there is no secret.
        """
        host, _, port = text(address, "listen").rpartition(":")
        if not host or not port.isdigit() or not 0 <= int(port) < 65536:
            raise DeclarationError(
                f"listen({address!r}) is not an address.", where=caller(), fix='write .listen("0.0.0.0:8080").'
            )
        return self._with_secret_or_local(replace(self, host=host.strip("[]"), port=int(port)))

    def segments(self, folder: str) -> Self:
        """Sets the folder in which deliveries wait until a run has committed them; it must survive restarts.

        Args:
            folder: A local or a shared folder, for this source alone; by default a folder in the user's data folder.
        """
        return replace(self, folder=text(folder, "segments"))

    def limits(
        self, *, body: int | None = None, waiting: int | None = None, duplicates: float | str | timedelta | None = None
    ) -> Self:
        """Sets the limits of the receiver.

        Args:
            body: The largest body in bytes, at most 16 MB; larger ones are refused with 413. 1 MB by default.
            waiting: The bytes that may wait for a run; more deliveries are refused with 429. 10 GB by default.
            duplicates: The time in which a second delivery with the same id is dropped; a day by default.
        """
        for name, number in (("body", body), ("waiting", waiting)):
            count(number, f"limits: {name}")
        if body is not None and body > MAX_BODY_BYTES:
            raise DeclarationError(
                f"limits(body={body}): Spark cannot read JSON much larger than {MAX_BODY_BYTES:,} bytes.",
                where=caller(),
                fix=f"write .limits(body={MAX_BODY_BYTES}) or less.",
            )
        window = duration(duplicates, "duplicates") if duplicates is not None else self.window
        most_body, most_waiting = body or self.max_body_bytes, waiting or self.max_waiting_bytes
        return replace(self, max_body_bytes=most_body, max_waiting_bytes=most_waiting, window=window)

    def fractions(self, action: Fractions) -> Self:
        """Sets the policy for timestamp digits beyond microseconds, which Go and .NET write, and columns cannot store.

        Args:
            action: "refuse" (default) answers 422. "truncate" cuts the digits after the sixth, before the delivery is
                stored.
        """
        return replace(self, fraction=one_of(action, FRACTIONS, "fractions"))

    def on_bad_row(self, action: OnBadRow) -> Self:
        """Sets the policy for stored deliveries that do not fit the columns when they are read; see `Files.source`.

        The receiver refuses such deliveries with 422. So stored deliveries fit, unless the declared columns have
        changed since.
        """
        return replace(self, bad_row=one_of(action, ON_BAD_ROW, "on_bad_row"))

    def with_metadata(self, *names: str) -> Self:
        """Adds columns with the id and the time of each delivery, in front of the other columns.

        Args:
            names: "_webhook_id" and "_webhook_received_at" (by the receiver's clock); by default both.

        Raises:
            DeclarationError: A name is not one of these.
        """
        wanted = dict(metadata_columns(names or tuple(METADATA), {}, METADATA))
        return replace(self, metadata=tuple(name for name in METADATA if name in wanted))

    def _with_secret_or_local(self, source: Self) -> Self:
        """Returns the source; refuses an address that other machines reach if there is no secret."""
        if not source.secrets and source.host not in LOOPBACK:
            raise DeclarationError(
                f"{self.label()}: without a secret, anybody who reaches {source.host} could deliver.",
                where=caller(),
                fix="pass secret=, or listen on 127.0.0.1.",
            )
        return source

    def as_files(self) -> FilesSource:
        """The folder of stored deliveries, as a source of files."""
        metadata = ", ".join(f"`{name}` {kind}" for name, kind in METADATA.items())
        declared = f"{metadata}, {self.declared_schema or 'body string'}"
        return FilesSource(
            path=self.folder,
            format="json",
            declared_schema=declared,
            extra=self.extra,
            adds_text=True,
            bad_row=self.bad_row,
            poll=self.poll,
            max_files=self.max_files,
            origin=self.origin,
            owner_label=self.label(),
        )

    def label(self) -> str:
        return f"Webhook.source({self.path}, poll={show_seconds(self.poll or 0)})"


class Webhook:
    """Deliveries over HTTP as sources."""

    @staticmethod
    def source(
        path: str,
        secret: str | Secret | Sequence[str | Secret] | None = None,
        schema: str | Mapping[str, str] | None = None,
        *,
        extra: Extra = "fail",
    ) -> WebhookSource:
        """Deliveries to a path; each delivery that was answered with 200 is written to the target once.

        The receiver runs with the driver, or as `helios webhook SCRIPT`; both need `helios-iceberg[webhook]`.

        Args:
            path: The path of the URL, such as "/orders".
            secret: The secret that signs deliveries, or several during a rotation. None accepts unsigned deliveries,
                from this machine only.
            schema: Columns and Spark SQL types of the body, as text ("id bigint, day date") or a mapping. By default
                the body is one column, `body`, of JSON text.
            extra: The policy for fields that the schema does not have: "fail" refuses the delivery with 422; "ignore"
                leaves them out; "add" adds them as string columns, since a later delivery may have another type; values
                that are not strings become JSON text.

        Raises:
            DeclarationError: The path is not the path of a URL, or `extra` is passed without a schema.
        """
        if not isinstance(path, str) or not path.startswith("/") or any(c in path for c in "?#{} "):
            raise DeclarationError(
                f"Webhook.source({path!r}): the path of a URL begins with / and has no ? # {{ }} or space.",
                where=caller(),
                fix='write Webhook.source("/orders", secret=..., schema=...).',
            )
        one_of(extra, EXTRA, "extra")
        if schema is None and extra != "fail":
            raise DeclarationError(
                f"Webhook.source({path!r}): extra= applies to fields that schema= lacks, and there is no schema=.",
                where=caller(),
                fix="pass schema=, or leave extra= out.",
            )
        secrets = [secret] if isinstance(secret, str | Secret) else list(secret or ())
        revealed = [secret.reveal() if isinstance(secret, Secret) else secret for secret in secrets]
        if not all(text.removeprefix("whsec_") for text in revealed):  # what Standard Webhooks put before a key
            raise DeclarationError(f"Webhook.source({path!r}): the secret is empty.", where=caller())
        wrapped_secrets = tuple(secret if isinstance(secret, Secret) else Secret(secret) for secret in secrets)
        return WebhookSource(
            path=path,
            secrets=wrapped_secrets,
            declared_schema=columns_ddl(schema),
            extra=extra,
            folder=_default_folder(path),
        )


def _default_folder(path: str) -> str:
    """The default folder for the deliveries of a path, inside the user's data folder."""
    from platformdirs import user_data_path

    # One folder for each path, side by side: a source reads and deletes the deliveries in all folders below its own.
    name = quote("/".join(part for part in path.split("/") if part not in ("", "..")), safe="")
    return str(Path(user_data_path("helios"), "webhooks", name))
