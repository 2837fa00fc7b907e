"""The rows of servers and object stores: what is refused, and what each engine is told."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from helios.catalog.catalogs import CATALOGS
from helios.catalog.conf import (
    checkpoint_components,
    checkpoint_problem,
    components,
    hadoop_conf,
    hadoop_uri,
    java_properties,
    pyiceberg_properties,
    replicas,
    shown_spark_conf,
    spark_conf,
    storage_of,
    warehouse,
)
from helios.catalog.spec import Catalog
from helios.catalog.storage import Storage
from helios.catalog.storages import STORAGES, checkpoint_schemes
from helios.environment.coordinates import COMPONENTS, NEWEST
from helios.errors import ConfigError, DeclarationError
from helios.model.values import Secret

pytestmark = pytest.mark.promise("configuration")

MARKER = "hunter2"
MINIO = Storage.s3(endpoint="http://minio:9000", access_key_id=MARKER, secret_access_key=MARKER)
LAKE = "abfss://lake@acc.dfs.core.windows.net/wh"
SECRET_ONES = (
    Catalog.rest("c", uri="https://x", credential=f"me:{MARKER}", storage=MINIO),
    Catalog.rest("c", uri="https://x", token=MARKER),
    Catalog.glue("c", warehouse="s3://b/w", storage=MINIO),
    Catalog.hive("c", uri="thrift://h:9083", warehouse=LAKE, storage=Storage.adls("acc", account_key=MARKER)),
    Catalog.hive("c", uri="thrift://h:9083", warehouse=LAKE, storage=Storage.adls("acc", sas_token=MARKER)),
    Catalog.nessie("c", uri="https://n", warehouse="s3://b/w", token=MARKER, storage=MINIO),
    Catalog.local(
        "c",
        path="/data",
        warehouse=LAKE,
        storage=Storage.adls(connection_string=f"AccountName=acc;AccountKey={MARKER};BlobEndpoint=http://h/acc"),
    ),
)


def own(catalog: Catalog) -> dict[str, str]:
    prefix = f"spark.sql.catalog.{catalog.name}."
    return {key.removeprefix(prefix): value for key, value in spark_conf(catalog).items() if key.startswith(prefix)}


def has(conf: dict[str, str], **wanted: str | None) -> None:
    named = {key.replace("__", ".").replace("_", "-"): value for key, value in wanted.items()}
    assert {key: conf.get(key) for key in named} == named


@pytest.mark.parametrize(
    ("declare", "what"),
    [
        (lambda: Catalog.rest("c", uri="https://x", credential="a:b", token="t"), "credential and token are two ways"),
        (lambda: Catalog.rest("c", uri="https://x", scope="s"), "scope configures the token request"),
        (lambda: Catalog.rest("c", uri="catalog:8181"), "uri 'catalog:8181' is not a URL that begins with http://"),
        (lambda: Catalog.rest("c", uri=[]), "uri must not be an empty list."),
        (lambda: Catalog.rest("c", uri="http://catalog:8181"), "uri 'http://catalog:8181' is not encrypted"),
        (lambda: Catalog.rest("c", uri=["https://a", "http://b"]), "uri 'http://b' is not encrypted"),
        (
            lambda: Catalog.rest("c", uri="https://x", credential="a:b", oauth2_server_uri="http://idp/t"),
            "oauth2_server_uri 'http://idp/t' is not encrypted",
        ),
        (lambda: Catalog.rest("c", uri=f"https://me:{MARKER}@x"), "uri must not contain a user or a password"),
        (lambda: Catalog.rest("c", uri=f"me:{MARKER}@x:8181"), "uri must not contain a user or a password"),
        (lambda: Catalog.rest("c", uri=f"https://me:{MARKER}@x:port"), "uri is not a URL."),
        (lambda: Catalog.glue("c", warehouse=f"s3://me:{MARKER}@b/w"), "its warehouse must not contain a user"),
        (lambda: Storage.gcs(service_account_key=f'{{"private_key": "{MARKER}%"}}'), "must be the path of a file"),
        (lambda: Catalog.rest("c", uri="https://x:port"), "uri is not a URL"),
        (
            lambda: Catalog.hive("c", uri="http://h:9083", warehouse="/w"),
            "uri 'http://h:9083' is not a URL that begins",
        ),
        (lambda: Catalog.hive("c", uri="thrift://h"), "it needs warehouse."),
        (lambda: Catalog.glue("c", warehouse="prod"), "its warehouse prod is on no storage that a glue catalog takes"),
        (lambda: Catalog.glue("c", warehouse="s3://b", catalog_id="x1"), "catalog_id 'x1' is not the number"),
        (lambda: Catalog.glue("c", warehouse="s3://b", storage=Storage.gcs()), "a glue catalog takes no gcs storage"),
        (lambda: Catalog.nessie("c", uri="https://n", ref="a b", warehouse="/w"), "ref 'a b' is not the name"),
        (lambda: Catalog.local("c", path="/d", storage=MINIO), "it needs warehouse."),
        (lambda: Catalog.local("c", path="/d", warehouse="gs://b", storage=MINIO), "is not on its s3 storage"),
        (lambda: Catalog.local("c", path="/d", warehouse="file://d/w"), "file://d/w does not begin with file:///"),
        (lambda: Catalog.local("c", path="/d", warehouse="file:w"), "file:w does not begin with file:///"),
        (lambda: Catalog.glue("c", warehouse="s3:/b/w"), "its warehouse s3:/b/w names no bucket"),
        (lambda: Catalog.rest("c", uri="https://x", warehouse="gs://"), "its warehouse gs:// names no bucket"),
        (lambda: Catalog.local("c", path="/d", warehouse="abfss://a/x"), "abfss://a/x names no container@account"),
        (
            lambda: Catalog.local(
                "c", warehouse="abfss://c@other.dfs.core.windows.net/x", storage=Storage.adls("lake")
            ),
            "is in the account 'other', and the account of its storage is 'lake'",
        ),
        (lambda: Catalog("c", "s3"), "'s3' is a storage: declare [storages.NAME]"),
        (lambda: Catalog.rest("c", uri="https://x", storage="lake"), "storage must be a Storage, not str"),  # type: ignore[arg-type]
        (lambda: Storage.s3(secret_access_key="x"), "secret_access_key is given without access_key_id"),
        (lambda: Storage.s3(access_key_id="x"), "access_key_id is given without secret_access_key"),
        (lambda: Storage.s3(session_token="x"), "session_token is given without access_key_id"),
        (lambda: Storage.s3(endpoint="minio:9000"), "endpoint 'minio:9000' is not a URL"),
        (lambda: Storage("s3", (("path_style", "yes"),)), "path_style must be true or false, not 'yes'."),
        (Storage.adls, "it needs account, or connection_string."),
        (lambda: Storage.adls("a", account_key="k", sas_token="s"), "account_key and sas_token are two ways"),
        (lambda: Storage.adls(connection_string="x"), "connection_string names no account"),
    ],
)
def test_what_cannot_be_is_refused_where_it_is_written(declare: Callable[[], object], what: str) -> None:
    with pytest.raises(DeclarationError) as error:
        declare()
    assert what in error.value.what
    assert MARKER not in str(error.value)
    assert error.value.where is not None
    assert error.value.where.file.endswith("test_rows.py")


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "[::1]", "127.8.8.8"])
def test_http_is_for_this_machine_or_on_request(host: str) -> None:
    assert Catalog.rest("c", uri=f"http://{host}:1").option("allow_http") is None
    assert Catalog.rest("c", uri="http://catalog:1", allow_http=True).option("allow_http") is True


@pytest.mark.parametrize("catalog", SECRET_ONES, ids=lambda c: f"{c.type} {c.storage and c.storage.type}")
def test_secrets_are_revealed_to_the_engines_alone(catalog: Catalog) -> None:
    assert MARKER not in repr(catalog)
    assert MARKER not in repr(shown_spark_conf(catalog))
    assert MARKER in repr(pyiceberg_properties(catalog))
    assert MARKER in repr(spark_conf(catalog))


def test_rest_for_both_engines() -> None:
    catalog = Catalog.rest("c", uri="https://x/cat/", warehouse="prod", credential="me:s", scope="all")
    shared = {"uri": "https://x/cat/", "warehouse": "prod", "credential": "me:s", "scope": "all", "type": "rest"}
    for conf in (own(catalog), pyiceberg_properties(catalog)):
        assert shared.items() <= conf.items()
        assert conf["oauth2-server-uri"] == "https://x/cat/v1/oauth/tokens"
    assert own(catalog)["header.X-Iceberg-Access-Delegation"] == "vended-credentials"
    assert warehouse(catalog) is None
    assert components(catalog) == ("iceberg",)
    keyed = Catalog.rest("c", uri="https://x", warehouse="s3://b/w", storage=MINIO)
    assert "header.X-Iceberg-Access-Delegation" not in own(keyed)
    assert components(keyed) == ("iceberg", "aws")
    assert "oauth2-server-uri" not in pyiceberg_properties(keyed)


def test_users_may_be_more_patient() -> None:
    key = "rest.client.socket-timeout-ms"
    assert own(Catalog.rest("c", uri="https://x", properties={key: "1"}))[key] == "1"


def test_replicas_have_one_address_each_and_spark_takes_the_first() -> None:
    catalog = Catalog.rest("c", uri=["https://a", "https://b"], credential="x:y")
    assert [replica.option("uri") for replica in replicas(catalog)] == ["https://a", "https://b"]
    assert all(replica.option("credential") == Secret("x:y") for replica in replicas(catalog))
    assert own(catalog)["uri"] == pyiceberg_properties(catalog)["uri"] == "https://a"
    assert replicas(Catalog.rest("c", uri=["https://a"])) == (Catalog.rest("c", uri="https://a"),)


def test_s3_for_both_engines_and_for_checkpoints() -> None:
    catalog = Catalog.local("c", path="/d", warehouse="s3://b/w", storage=MINIO)
    spark, py = own(catalog), pyiceberg_properties(catalog)
    has(spark, s3__endpoint="http://minio:9000", s3__path_style_access="true", client__region="us-east-1")
    has(py, s3__endpoint="http://minio:9000", s3__force_virtual_addressing="false", s3__region="us-east-1")
    for conf in (spark, py):
        has(conf, s3__access_key_id=MARKER, s3__secret_access_key=MARKER, s3__session_token=None)
    hadoop = hadoop_conf("s3a://b/w/_helios", [catalog])
    assert hadoop["fs.s3a.bucket.b.access.key"] == MARKER
    assert hadoop["fs.s3a.bucket.b.connection.ssl.enabled"] == "false"
    assert all(key.startswith("fs.s3a.bucket.b.") for key in hadoop)


def test_s3_without_keys_takes_the_default_chain() -> None:
    catalog = Catalog.glue("c", warehouse="s3://b/w", region="eu-west-1")
    assert storage_of(catalog) == Storage.s3()
    assert own(catalog)["io-impl"].endswith("S3FileIO")
    has(own(catalog), s3__access_key_id=None, s3__path_style_access=None, client__region="eu-west-1")
    has(pyiceberg_properties(catalog), s3__region="eu-west-1", glue__region="eu-west-1", glue__access_key_id=None)
    provider = hadoop_conf("s3a://b/x", [catalog])["fs.s3a.bucket.b.aws.credentials.provider"]
    assert provider.endswith("DefaultCredentialsProvider")


def test_path_style_may_be_declined() -> None:
    storage = Storage.s3(endpoint="http://minio:9000", path_style=False)
    catalog = Catalog.local("c", path="/d", warehouse="s3://b/w", storage=storage)
    assert own(catalog)["s3.path-style-access"] == "false"
    assert pyiceberg_properties(catalog)["s3.force-virtual-addressing"] == "true"


def test_glue_takes_a_profile_or_the_keys_of_its_storage() -> None:
    keyed = Catalog.glue("c", warehouse="s3://b/w", storage=MINIO)
    assert pyiceberg_properties(keyed)["glue.access-key-id"] == MARKER
    assert java_properties(keyed) == {"aws.accessKeyId": MARKER, "aws.secretAccessKey": MARKER}
    profile = Catalog.glue("c", warehouse="s3://b/w", profile="etl", catalog_id="123")
    assert java_properties(profile) == {"aws.profile": "etl"}
    has(pyiceberg_properties(profile), glue__profile_name="etl", glue__id="123")


def test_adls_however_its_credentials_are_given() -> None:
    key = Storage.adls("acc", account_key="k")
    string = Storage.adls(connection_string="DefaultEndpointsProtocol=https;AccountName=acc;AccountKey=k")
    for storage in (key, string):
        catalog = Catalog.local("c", path="/d", warehouse=LAKE, storage=storage)
        assert own(catalog)["adls.auth.shared-key.account.key"] == "k"
        has(
            pyiceberg_properties(catalog), adls__account_name="acc", adls__account_key="k", adls__connection_string=None
        )
        assert hadoop_conf(LAKE, [catalog])["fs.azure.account.key.acc.dfs.core.windows.net"] == "k"
    sas = Catalog.local("c", path="/d", warehouse=LAKE, storage=Storage.adls("acc", sas_token="?sv=1"))
    assert own(sas)["adls.sas-token.acc.dfs.core.windows.net"] == "sv=1"
    assert hadoop_conf(LAKE, [sas])["fs.azure.sas.fixed.token.acc.dfs.core.windows.net"] == "sv=1"
    chain = Catalog.local("c", path="/d", warehouse=LAKE)
    assert storage_of(chain) == Storage.adls("acc")
    assert hadoop_conf(LAKE, [chain])["fs.azure.account.auth.type.acc.dfs.core.windows.net"] == "OAuth"


@pytest.mark.parametrize(
    ("suffix", "host"), [("core.windows.net", None), ("core.chinacloudapi.cn", "acc.blob.core.chinacloudapi.cn")]
)
def test_adls_by_the_connection_string_of_the_portal(suffix: str, host: str | None) -> None:
    """Azure's own address is no endpoint of an emulator, and names the cloud."""
    given = (
        f"BlobEndpoint=https://acc.blob.{suffix}/;FileEndpoint=https://acc.file.{suffix}/;SharedAccessSignature=sv=1"
    )
    lake = f"abfss://lake@acc.dfs.{suffix}/w"
    catalog = Catalog.local("c", path="/d", warehouse=lake, storage=Storage.adls(connection_string=given))
    assert own(catalog)[f"adls.sas-token.acc.dfs.{suffix}"] == "sv=1"
    assert not any("adls.connection-string" in key for key in own(catalog))
    has(pyiceberg_properties(catalog), adls__account_name="acc", adls__sas_token="sv=1", adls__connection_string=None)
    assert pyiceberg_properties(catalog).get("adls.account-host") == host
    assert checkpoint_problem(lake, [catalog]) is None
    conf = hadoop_conf(lake, [catalog])
    assert conf[f"fs.azure.sas.fixed.token.acc.dfs.{suffix}"] == "sv=1"
    assert not any("endpoint" in key for key in conf)
    by_key = Storage.adls(connection_string=f"AccountName=acc;AccountKey=k;EndpointSuffix={suffix}")
    assert pyiceberg_properties(replace(catalog, storage=by_key)).get("adls.account-host") == host


def test_an_emulator_has_the_account_in_the_path_of_its_address() -> None:
    given = "BlobEndpoint=http://127.0.0.1:10000/dev;SharedAccessSignature=sv=1"
    lake = "abfs://lake@dev.dfs.core.windows.net/w"
    catalog = Catalog.local("c", path="/d", warehouse=lake, storage=Storage.adls(connection_string=given))
    has(pyiceberg_properties(catalog), adls__account_name="dev", adls__sas_token="sv=1")


def test_adls_at_another_address_keeps_checkpoints_by_abfs() -> None:
    storage = Storage.adls("dev", account_key="k", endpoint="http://localhost:1/dev")
    catalog = Catalog.local("c", path="/d", warehouse="abfss://lake@dev.dfs.core.windows.net/w", storage=storage)
    assert own(catalog)["adls.connection-string.dev.dfs.core.windows.net"] == "http://localhost:1/dev"
    assert "BlobEndpoint=http://localhost:1/dev" in pyiceberg_properties(catalog)["adls.connection-string"]
    assert "begins with abfs://" in (checkpoint_problem(warehouse(catalog) or "", [catalog]) or "")
    place = "abfs://lake@dev.dfs.core.windows.net/w"
    assert checkpoint_problem(place, [catalog]) is None
    assert hadoop_conf(place, [catalog])["fs.azure.abfs.endpoint.dev.dfs.core.windows.net"] == "localhost:1"
    elsewhere = replace(catalog, storage=Storage.adls("dev", account_key="k", endpoint="https://dev.example.com"))
    assert "as its path" in (checkpoint_problem(place, [elsewhere]) or "")
    assert checkpoint_problem("/shared", [catalog]) is None


def test_gcs_with_a_key_an_emulator_and_the_default_chain(tmp_path: Path) -> None:
    def on(storage: Storage | None) -> Catalog:
        return Catalog.local("c", path="/d", warehouse="gs://b/w", storage=storage)

    key = on(Storage.gcs(service_account_key=tmp_path / "k.json"))
    with pytest.raises(ConfigError, match=r"there is no file .*k\.json"):
        pyiceberg_properties(key)
    (tmp_path / "k.json").write_text("{}")
    assert own(key)["io-impl"].endswith("HadoopFileIO")
    assert own(key)["hadoop.fs.gs.auth.service.account.json.keyfile"] == str(tmp_path / "k.json")
    assert pyiceberg_properties(key)["gcs.oauth2.token"] == str(tmp_path / "k.json")
    emulator = on(Storage.gcs(endpoint="http://localhost:4443", project_id="p"))
    has(own(emulator), gcs__no_auth="true", gcs__service__host="http://localhost:4443", gcs__project_id="p")
    assert hadoop_conf("gs://b/x", [emulator])["fs.gs.auth.null.enable"] == "true"
    chain = on(None)
    has(own(chain), gcs__no_auth=None, gcs__service__host=None)
    assert "gcs.oauth2.token" not in pyiceberg_properties(chain)


def test_hive_and_its_lock() -> None:
    catalog = Catalog.hive("c", uri=["thrift://a:1", "thrift://b:1"], storage=Storage.local("/w"), lock=False)
    assert own(catalog)["hadoop.iceberg.engine.hive.lock-enabled"] == "false"
    assert own(catalog)["warehouse"] == warehouse(catalog) == "file:///w"
    assert "hadoop.iceberg.engine.hive.lock-enabled" not in own(Catalog.hive("c", uri="thrift://a:1", warehouse="/w"))


@pytest.mark.parametrize(
    "uri", ["http://localhost:19120", "http://localhost:19120/api/v2/", "http://localhost:19120/iceberg/main"]
)
def test_nessie_is_found_at_any_of_its_addresses(uri: str) -> None:
    catalog = Catalog.nessie("c", uri=uri, ref="trial", warehouse="s3://b/w")
    for conf in (own(catalog), pyiceberg_properties(catalog)):
        has(conf, uri="http://localhost:19120/api/v2", ref="trial", warehouse="s3://b/w")


def test_checkpoints_know_their_jars_and_the_names_of_hadoop() -> None:
    assert checkpoint_components("s3a://b/x") == ("s3a",)
    assert checkpoint_components("hdfs://n/x") == ()
    assert hadoop_uri("s3://b/x") == "s3a://b/x"
    assert {"s3a", "abfss", "gs", "hdfs", "file"} <= set(checkpoint_schemes())
    assert "s3" not in checkpoint_schemes()


def test_the_credentials_of_a_checkpoint_are_those_of_the_warehouse_beside_it() -> None:
    other = Catalog.local("o", path="/o", warehouse="s3://other/w", storage=Storage.s3(region="eu-west-1"))
    own_one = Catalog.local("c", path="/d", warehouse="s3://b/w", storage=MINIO)
    assert hadoop_conf("s3a://b/x", [other, own_one])["fs.s3a.bucket.b.access.key"] == MARKER
    assert hadoop_conf("s3a://b/x", [other])["fs.s3a.bucket.b.endpoint.region"] == "eu-west-1"
    assert hadoop_conf("/shared/x", [own_one]) == {}


def test_the_jars_of_every_row_are_known() -> None:
    named = {c for row in CATALOGS.values() for c in row.components}
    named |= {c for row in STORAGES.values() for c in (*row.components, *row.checkpoint_components)}
    assert named <= set(COMPONENTS[NEWEST])


DOCS = (Path(__file__).parents[3] / "docs" / "configuration.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(("rows", "kind"), [(CATALOGS, "catalog"), (STORAGES, "storage")])
def test_the_docs_name_every_key_as_the_rows_do(rows: dict[str, object], kind: str) -> None:
    for name, row in rows.items():
        for key in row.keys:  # type: ignore[attr-defined]
            assert f"| `{name}` | `{key.name}` | {key.about.replace('|', '/')}" in DOCS, (kind, name, key.name)
