"""Catalogs and storages as values: what is refused, what is secret, what is equal."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

from helios.catalog.catalogs import CATALOGS
from helios.catalog.conf import components, pyiceberg_properties, shown_spark_conf, spark_conf, warehouse
from helios.catalog.keys import Key
from helios.catalog.rows import CatalogRow
from helios.catalog.spec import Catalog
from helios.catalog.storage import Storage
from helios.catalog.storages import STORAGES
from helios.errors import DeclarationError
from helios.model.values import Secret

pytestmark = pytest.mark.promise("secrets")


def message(error: pytest.ExceptionInfo[DeclarationError]) -> str:
    return f"{error.value.what} | {error.value.fix}"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> str:
    """A made-up row with a required and a secret key, as servers will have."""
    row = CatalogRow(
        keys=(Key("uri", "address", required=True), Key("token", "bearer token", secret=True)),
        spark=lambda c: {"uri": c.option("uri") or "", "token": c.option("token") or ""},
        pyiceberg=lambda c: {"uri": c.option("uri") or "", "token": c.option("token") or ""},
        warehouse=lambda c: None,
        components=("iceberg",),
    )
    monkeypatch.setitem(CATALOGS, "server", row)
    return "server"


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("prod-eu", "'prod-eu' is not a catalog name: use letters, digits and '_'."),
        ("", "'' is not a catalog name: use letters, digits and '_'."),
        ("a.b", "'a.b' is not a catalog name: use letters, digits and '_'."),
        ("spark_catalog", "'spark_catalog' is Spark's own catalog: use another name."),
    ],
)
def test_a_bad_name_is_refused(name: str, what: str) -> None:
    with pytest.raises(DeclarationError) as error:
        Catalog.memory(name)
    assert error.value.what == what
    assert error.value.where is not None
    assert error.value.where.file.endswith("test_spec.py")


def test_an_unknown_type_names_the_nearest() -> None:
    with pytest.raises(DeclarationError) as error:
        Catalog("prod", "memry")
    assert error.value.what == "catalog type 'memry' is unknown. Did you mean 'memory'?"
    with pytest.raises(DeclarationError) as error:
        Storage("lokal")
    assert error.value.what == "storage type 'lokal' is unknown. Did you mean 'local'?"


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ((("pth", "x"),), "catalog 'c': unknown key 'pth'. Did you mean 'path'?"),
        ((("path", 3),), "catalog 'c': path must be text, not int."),
        ((("path", " "),), "catalog 'c': path must not be empty."),
        (
            (("path", "a?b"),),
            "catalog 'c': path 'a?b' must not contain '?': PyIceberg and SQLite's driver read it as a URL.",
        ),
    ],
)
def test_wrong_options_are_refused(options: tuple[tuple[str, str], ...], what: str) -> None:
    with pytest.raises(DeclarationError) as error:
        Catalog("c", "local", options)
    assert error.value.what == what


def test_a_storage_needs_its_path() -> None:
    with pytest.raises(DeclarationError) as error:
        Storage("local")
    assert error.value.what == "Storage.local: it needs path."


def test_a_catalog_takes_only_its_storages(tmp_path: Path) -> None:
    with pytest.raises(DeclarationError) as error:
        Catalog("m", "memory", storage=Storage.local(tmp_path))
    assert error.value.what == "catalog 'm': a memory catalog takes no local storage. There are none."


def test_properties_must_be_text_and_not_helios_own() -> None:
    with pytest.raises(DeclarationError) as error:
        Catalog.memory("m", properties={"io.retries": 3})  # type: ignore[dict-item]
    assert message(error) == (
        "catalog 'm': property 'io.retries' must be text, not int. | write properties={\"key\": \"value\"}."
    )
    for key in ("warehouse", "uri", "cache-enabled", "jdbc.schema-version"):
        with pytest.raises(DeclarationError) as error:
            Catalog.memory("m", properties={key: "x"})
        assert message(error) == f"catalog 'm': property {key!r} is set by Helios for a memory catalog. | leave it out."


def test_a_required_key_is_demanded(server: str) -> None:
    with pytest.raises(DeclarationError) as error:
        Catalog("prod", server, (("token", "t"),))
    assert error.value.what == "catalog 'prod': it needs uri."


def test_secrets_are_shown_nowhere_and_revealed_in_the_conf(server: str) -> None:
    catalog = Catalog(
        "prod",
        server,
        (("uri", "https://x"), ("token", "hunter2")),
        properties=(("s3.secret-access-key", "hunter3"), ("s3.region", "eu")),
    )
    assert catalog.option("token") == Secret("hunter2")
    assert "hunter" not in repr(catalog)
    assert "hunter" not in repr(shown_spark_conf(catalog))
    assert shown_spark_conf(catalog)["spark.sql.catalog.prod.s3.region"] == "eu"
    assert spark_conf(catalog)["spark.sql.catalog.prod.token"] == "hunter2"
    assert spark_conf(catalog)["spark.sql.catalog.prod.s3.secret-access-key"] == "hunter3"
    assert pyiceberg_properties(catalog)["token"] == "hunter2"


@pytest.mark.parametrize(
    "key",
    [
        "s3.access-key-id",
        "s3.session-token",
        "adls.auth.shared-key.account.key",
        "adls.connection-string.a.dfs.core.windows.net",
        "adls.sas-token.a",
        "header.Authorization",
        "jdbc.password",
        "credential",
    ],
)
def test_properties_that_hold_secrets_are_redacted(key: str) -> None:
    assert dict(Catalog.memory("m", properties={key: "hunter2"}).properties)[key] == Secret("hunter2")


def test_equal_values_are_equal_wherever_they_are_declared(tmp_path: Path) -> None:
    one = Catalog.local("dev", path=tmp_path, properties={"a": "1", "b": "2"})
    two = Catalog.local("dev", path=str(tmp_path), properties={"b": "2", "a": "1"})
    assert one == two
    assert hash(one) == hash(two)
    assert one.origin != two.origin
    assert pickle.loads(pickle.dumps(one)) == one


def test_a_relative_path_is_of_the_working_directory_at_the_declaration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    catalog = Catalog.local(path="lake")
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert catalog.option("path") == str(tmp_path / "lake")


SCRIPT = """
from helios.catalog.spec import Catalog
print(Catalog.local().option("path"))
print(Catalog.local("dev").option("path"))
"""


@pytest.mark.parametrize("configured", [True, False])
def test_the_default_folder_is_beside_the_configuration_else_in_the_working_directory(
    tmp_path: Path, configured: bool
) -> None:
    script = tmp_path / "project" / "jobs" / "job.py"
    script.parent.mkdir(parents=True)
    script.write_text(SCRIPT)
    if configured:
        (tmp_path / "project" / "helios.toml").write_text("")
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
    run = subprocess.run(
        [sys.executable, str(script)], cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
    )
    root = tmp_path / "project" if configured else tmp_path
    assert run.stdout.splitlines() == [str(root / ".helios"), str(root / ".helios" / "catalogs" / "dev")]
    assert not (root / ".helios").exists()


def test_the_local_catalog_for_spark_and_for_pyiceberg(tmp_path: Path) -> None:
    catalog = Catalog.local("dev", path=tmp_path / "my lake", properties={"io-impl": "x"})
    prefix, folder = "spark.sql.catalog.dev", f"{tmp_path}/my lake"
    assert spark_conf(catalog) == {
        prefix: "org.apache.iceberg.spark.SparkCatalog",
        f"{prefix}.type": "jdbc",
        f"{prefix}.uri": f"jdbc:sqlite:{folder}/catalog.db",
        f"{prefix}.jdbc.schema-version": "V1",
        f"{prefix}.jdbc.busy_timeout": "60000",
        f"{prefix}.warehouse": f"file://{folder}/warehouse",
        f"{prefix}.cache-enabled": "false",
        f"{prefix}.io-impl": "x",
    }
    assert pyiceberg_properties(catalog) == {
        "type": "sql",
        "uri": f"sqlite:///{folder}/catalog.db?timeout=60",
        "warehouse": f"file://{folder}/warehouse",
        "io-impl": "x",
    }
    assert components(catalog) == ("iceberg", "sqlite")
    assert warehouse(catalog) == f"file://{folder}/warehouse"


def test_a_storage_moves_the_warehouse(tmp_path: Path) -> None:
    catalog = Catalog.local("dev", path=tmp_path / "state", storage=Storage.local(tmp_path / "disk"))
    assert warehouse(catalog) == f"file://{tmp_path}/disk"
    assert pyiceberg_properties(catalog)["warehouse"] == f"file://{tmp_path}/disk"
    assert spark_conf(catalog)["spark.sql.catalog.dev.warehouse"] == f"file://{tmp_path}/disk"


def test_a_memory_catalog_has_no_lasting_warehouse_and_a_folder_of_its_own() -> None:
    one, two = Catalog.memory("one"), Catalog.memory("two")
    assert warehouse(one) is None
    assert (
        spark_conf(one)["spark.sql.catalog.one.uri"] == spark_conf(Catalog.memory("one"))["spark.sql.catalog.one.uri"]
    )
    assert pyiceberg_properties(one)["uri"] != pyiceberg_properties(two)["uri"]


def test_every_row_is_documented_and_made_by_a_factory() -> None:
    for rows, value in ((CATALOGS, Catalog), (STORAGES, Storage)):
        for name, row in rows.items():
            assert callable(getattr(value, name))
            assert row.gaps
            assert all(key.about for key in row.keys)


def test_declaring_imports_no_engine() -> None:
    code = (
        "import sys; from helios.catalog.spec import Catalog; from helios.catalog.conf import spark_conf; "
        "import helios.config, helios.catalog.operations; c = Catalog.memory('m'); spark_conf(c); c.exists('a.b'); "
        "print(sorted({'pyspark', 'py4j', 'pyiceberg', 'pyarrow', 'sqlalchemy', 'rich'} & set(sys.modules)))"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
    run = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"
