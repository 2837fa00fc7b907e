"""Finds the likely cause and the fix of failed calls to catalogs and storages, from symptoms in the error chain."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple


class Diagnosis(NamedTuple):
    """A symptom with its likely cause and its fix.

    Args:
        name: An identifier for code and tests. Messages do not show it.
        symptom: A regular expression that is searched in an error's class name and message, regardless of case.
        cause: The likely cause, as the end of a sentence.
        fix: The fix, in the imperative.
        unreached: Whether the server has certainly not received the request, so that the next replica may be tried.
        wrong_settings: Whether the settings are wrong, so that a retry cannot help.
    """

    name: str
    symptom: str
    cause: str
    fix: str
    unreached: bool = False
    wrong_settings: bool = False


def _status(number: str) -> str:
    """A pattern for an HTTP status in a message: the number must not be part of a name, an address or a port."""
    return rf"(?:(?<![\w.:/@=-])|status[ =:]|code[ =:])(?:{number})(?![\w@/-])"


DIAGNOSES = (
    # Missing on this machine
    Diagnosis(
        "no boto3",
        r"No module named '(boto3|botocore)",
        "the Python package boto3 is missing",
        "pip install 'helios-iceberg[glue]'",
    ),
    Diagnosis(
        "no thrift",
        r"No module named '(thrift|hive_metastore)",
        "the Python package thrift is missing",
        "pip install 'helios-iceberg[hive]'",
    ),
    Diagnosis(
        "no adlfs",
        r"No module named '(adlfs|azure)|Could not initialize FileIO.*fsspec.*abfs",
        "the Python package adlfs is missing",
        "pip install 'helios-iceberg[adls]'",
    ),
    Diagnosis(
        "no gcsfs",
        r"No module named '(gcsfs|google)|Could not initialize FileIO: pyiceberg.io.fsspec",
        "the Python package gcsfs is missing",
        "pip install 'helios-iceberg[gcs]'",
    ),
    Diagnosis(
        "no jar",
        r"ClassNotFoundException|NoClassDefFoundError|Cannot find constructor for|No FileSystem for scheme",
        "a jar is missing in the Spark session",
        "run `helios jars SCRIPT` and `helios doctor`; storage= says which jars are needed",
    ),
    # Credentials. They come before the network, since an error chain may contain errors of both kinds
    Diagnosis(
        "no credentials",
        r"Unable to locate credentials|NoCredentialsError|Unable to load credentials from any"
        r"|DefaultCredentialsError|could not find default credentials|Could not load the default credentials"
        r"|DefaultAzureCredential failed|No AWS (profile|credentials)|ProfileNotFound"
        r"|config profile .* could not be found",
        "no credentials were given and the default chain of the cloud has none",
        "give the keys in its storage, or set up the chain (environment variables, a profile, an instance role)",
        wrong_settings=True,
    ),
    Diagnosis(
        "expired token",
        r"ExpiredToken|token (is|has) expired|expired token|AuthorizationExpired|"
        + _status("419")
        + r"|RequestExpired|signature (is|has) expired|security token included in the request is expired",
        "its token has expired, or the server does not know the token",
        "get a new token, or give `credential`, which renews tokens",
        wrong_settings=True,
    ),
    Diagnosis(
        "clock",
        r"RequestTimeTooSkewed|clock skew|request date header",
        "the clock of this machine is wrong",
        "set the clock, for example by NTP",
    ),
    Diagnosis(
        "wrong region",
        r"AuthorizationHeaderMalformed|PermanentRedirect|\bthe region '.+' is wrong"
        r"|HTTP status 301|status code:? 301|\(301\)|IllegalLocationConstraint|incorrect region|is in this region"
        r"|configured region is"
        r"|credential should be scoped to a valid region",
        "the bucket is in another region",
        "set region= of the storage to the bucket's region",
        wrong_settings=True,
    ),
    Diagnosis(
        "unknown key",
        r"InvalidAccessKeyId|UnrecognizedClient|InvalidClientTokenId|access key id you provided does not exist",
        "its server does not know the access key",
        "check access_key_id, and that it belongs to this server or account",
        wrong_settings=True,
    ),
    Diagnosis(
        "wrong session",
        r"InvalidToken\b|InvalidTokenId|security token included in the request is invalid",
        "the session token does not belong to these keys",
        "give the access key, its secret and the session token that were issued together, or leave session_token out",
        wrong_settings=True,
    ),
    Diagnosis(
        "wrong secret",
        r"SignatureDoesNotMatch|signature we calculated does not match|InvalidSignature"
        r"|AuthenticationFailed|Server failed to authenticate the request|invalid_grant",
        "the secret does not match the key",
        "check the secret key, token or connection string of its storage",
        wrong_settings=True,
    ),
    Diagnosis(
        "wrong scope",
        r"invalid_scope",
        "the token server does not grant the scope",
        "check `scope`",
        wrong_settings=True,
    ),
    Diagnosis(
        "wrong client",
        r"invalid_client|OAuthError|Credentials given were invalid|unauthorized_client",
        "the token server refuses the client credentials",
        "check `credential` (client_id:secret) and `oauth2_server_uri`",
        wrong_settings=True,
    ),
    Diagnosis(
        "unauthorized",
        r"UnauthorizedError|NotAuthorizedException|" + _status("401") + r"|Not authorized|Unauthorized",
        "its server does not know these credentials (401)",
        "check `credential` or `token`, and the keys of its storage",
        wrong_settings=True,
    ),
    Diagnosis(
        "forbidden",
        r"ForbiddenError|AccessDenied|ACCESS_DENIED|" + _status("403") + r"|Forbidden|AuthorizationFailure"
        r"|AuthorizationPermissionMismatch|not authorized to perform|PermissionDenied",
        "the credentials are wrong, or may not do this (403)",
        "check the keys and their rights",
        wrong_settings=True,
    ),
    # Missing on the server
    Diagnosis(
        "no bucket",
        r"NoSuchBucket|bucket does not exist|NO_SUCH_BUCKET|NOT_FOUND.{0,400}CreateResumableUpload|ContainerNotFound"
        r"|FilesystemNotFound|specified container does not exist|specified filesystem does not exist"
        r"|bucket.{0,80}not found",
        "the bucket (or container) of its warehouse does not exist",
        "create it, or check the warehouse; a server other than Amazon's may need path_style=True",
        wrong_settings=True,
    ),
    Diagnosis(
        "no warehouse",
        r"NoSuchWarehouse|warehouse .{0,80}(not found|does not exist|unknown)",
        "its server knows no such warehouse",
        "check `warehouse`",
        wrong_settings=True,
    ),
    Diagnosis(
        "no branch",
        r"NessieReferenceNotFound|Named reference .* not found|REFERENCE_NOT_FOUND",
        "Nessie has no such branch or tag",
        "check `ref`, or create the branch",
        wrong_settings=True,
    ),
    Diagnosis(
        "no locks",
        r"Unable to (select from|update).*(HIVE_LOCKS|NEXT_LOCK_ID|TXNS)|HIVE_LOCKS|NEXT_LOCK_ID"
        r"|HiveTable.*lock|Error updating transaction database",
        "this metastore has no lock tables",
        "create them with Hive's schematool, or give lock=False for a metastore of version 2.3.10, or 4.0 and later",
        wrong_settings=True,
    ),
    # The network
    Diagnosis(
        "tls",
        r"CERTIFICATE_VERIFY_FAILED|SSLError|SSLHandshakeException|SSLCertVerificationError|PKIX path"
        r"|WRONG_VERSION_NUMBER|wrong version number|certificate (has expired|verify failed)|curlCode: (35|60)",
        "the TLS handshake failed",
        "check http or https in its address, and that its certificate is trusted here",
        unreached=True,
    ),
    Diagnosis(
        "dns",
        r"Name or service not known|NameResolutionError|getaddrinfo|nodename nor servname|UnknownHost"
        r"|Temporary failure in name resolution"
        r"|Could(n't| not) resolve host|CURL error \[6\]|curlCode: 6\b|No address associated",
        "the name of its host is not known",
        "check the host in its address, and the DNS of this machine; a host that begins with the bucket's name needs "
        "path_style=True",
        unreached=True,
    ),
    Diagnosis(
        "refused",
        r"Connection refused|ConnectionRefused|NewConnectionError"
        r"|CURL error \[7\]|curlCode: 7\b|Could not connect to any of"
        r"|EndpointConnectionError|Couldn't connect to server|Cannot connect to host"
        r"|Failed to establish a new connection",
        "nothing listens at its address",
        "check its host and port, and that the server is up",
        unreached=True,
    ),
    Diagnosis(
        "unreachable",
        r"Network is unreachable|No route to host|EHOSTUNREACH|ENETUNREACH",
        "its network is unreachable",
        "check the address, a VPN or a firewall",
        unreached=True,
    ),
    Diagnosis(
        "connect timeout",
        r"ConnectTimeout|connect timeout|connect timed out|timed out.*connect|Connect(ion)? to .* timed out"
        r"|Connection timed out|CURL error \[28\]|curlCode: 28\b(?!.*too slow)",
        "it did not answer in time",
        "check its host and port, and that no firewall drops the connection",
        unreached=True,
    ),
    Diagnosis(
        "timeout",
        r"ReadTimeout|TooLong|Read timed out|SocketTimeout|timed out|TimeoutError|Timeout was reached|RequestTimeout",
        "its server accepted the request and did not answer in time",
        "check the load and the log of the server",
    ),
    Diagnosis(
        "reset",
        r"Connection reset|ConnectionResetError|RemoteDisconnected|Connection aborted|Broken pipe|EOFError"
        r"|Server disconnected|unexpected end of (file|stream)|TSocket read 0 bytes|NoHttpResponse|BadStatusLine",
        "the connection broke off",
        "try again; check the log of the server",
    ),
    Diagnosis(
        "away",
        r"ServiceUnavailable|ServerError|"
        + _status("50[0234]")
        + r"|Service Unavailable|Bad Gateway|InternalServerError"
        r"|InternalFailure|SlowDown",
        "its server is up but cannot answer",
        "try again; check the log of the server",
    ),
    Diagnosis(
        "no catalog",
        r"ValidationError|JSONDecodeError|" + _status("404") + r"|Not Found|RESTError|No route for request",
        "the server at its address is not a catalog of this type",
        "check `uri`: it must not include /v1",
        wrong_settings=True,
    ),
)
"""All diagnoses. The first one that matches is used, so specific symptoms come before vague ones."""


def diagnose(error: BaseException) -> Diagnosis | None:
    """The diagnosis of an error, from the error or one of its causes; None if no diagnosis matches.

    Examples:
        >>> diagnose(ConnectionRefusedError(111, "Connection refused")).name
        'refused'
    """
    diagnosis, _ = _diagnosed(error)
    return diagnosis


def evidence(error: BaseException) -> str:
    """The shortest error in the chain that shows the cause, on one line."""
    _, shortest = _diagnosed(error)
    return brief(shortest)


def _diagnosed(error: BaseException) -> tuple[Diagnosis | None, BaseException]:
    """The first diagnosis that matches, and the shortest error that shows it. Without a match, None and the error."""
    errors = {f"{type(cause).__name__}: {cause}": cause for cause in chain(error)}
    for diagnosis in DIAGNOSES:
        matching_texts = [text for text in errors if re.search(diagnosis.symptom, text, re.IGNORECASE)]
        if matching_texts:
            return diagnosis, errors[min(matching_texts, key=len)]
    return None, error


def chain(error: BaseException) -> Iterator[BaseException]:
    """An error, its causes, and the errors among its arguments."""
    pending: list[BaseException] = [error]
    seen: set[int] = set()
    while pending:
        current = pending.pop(0)
        if id(current) in seen:
            continue
        seen.add(id(current))
        yield current
        linked = (current.__cause__, current.__context__, getattr(current, "reason", None), *current.args)
        pending += [other for other in linked if isinstance(other, BaseException)]


def brief(error: BaseException, length: int = 300) -> str:
    """An error's message on one line, with credentials in URLs masked.

    The prefix of the AWS SDK, and an HTML or XML page from a server, are left out.
    """
    text = re.sub(r"//[^/@\s]+@", "//***@", " ".join(str(error).split()))
    text = re.sub(r"^When .+?: (?=AWS Error)|Unable to parse ExceptionName: ", "", text)
    text = re.split(r":?\s*(?:Content: )?<(?:\?xml|!DOCTYPE|html)", text, maxsplit=1)[0]
    return f"{type(error).__name__}: {text if len(text) <= length else text[: length - 1] + '…'}"
