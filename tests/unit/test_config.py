"""helios.toml: what is read, what is refused and in which words, and how names resolve."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helios.catalog.catalogs import CATALOGS
from helios.catalog.keys import Key
from helios.catalog.names import TableName
from helios.catalog.rows import CatalogRow
from helios.catalog.spec import Catalog
from helios.catalog.storage import Storage
from helios.config import Config, load, resolve
from helios.config.tree import expand, merge
from helios.errors import ConfigError, NotFound, Origin
from helios.model.values import Identifier, Secret

pytestmark = pytest.mark.promise("configuration")

HERE = Origin("job.py", 7)
Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Writes a configuration into the working directory and returns the folder."""
    monkeypatch.chdir(tmp_path)

    def writer(text: str | bytes, name: str = "helios.toml") -> Path:
        (tmp_path / name).write_bytes(text if isinstance(text, bytes) else text.encode())
        return tmp_path

    return writer


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> None:
    """A made-up row with a required and a secret key, as servers will have."""
    row = CatalogRow(
        keys=(Key("uri", "address", required=True), Key("token", "bearer token", secret=True)),
        spark=lambda c: {"uri": c.option("uri") or ""},
        pyiceberg=lambda c: {},
        warehouse=lambda c: None,
        components=(),
        storages=("local",),
    )
    monkeypatch.setitem(CATALOGS, "server", row)


def refused(folder: Path, profile: str | None = None, env: dict[str, str] | None = None) -> str:
    with pytest.raises(ConfigError) as error:
        load(folder, profile, env or {})
    return str(error.value)


FULL = """\
default_catalog = "prod"

[catalogs.prod]
type = "local"
path = "lake"
storage = "disk"

[catalogs.prod.properties]
"io.retries" = 3
s3.secret-access-key = "${KEY}"

[catalogs.scratch]
type = "memory"

[storages.disk]
type = "local"
path = "../disk"

[spark]
master = "spark://${HOST:-localhost}:7077"

[spark.conf]
spark.sql.shuffle.partitions = 8
"spark.sql.ansi.enabled" = true
spark.memory.fraction = 0.5

[profiles.dev]
default_catalog = "scratch"
spark.master = "local[2]"
spark.conf.spark.sql.shuffle.partitions = 1

[profiles.dev.catalogs.prod]
path = "/dev"
"""


def test_without_a_file_there_is_the_local_catalog(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    config = load(tmp_path, env={})
    assert config == Config(
        root=tmp_path,
        file=None,
        default_catalog="local",
        catalogs={"local": Catalog.local(path=tmp_path / ".helios")},
        storages={},
        master="local[*]",
        spark_conf={},
        profile=None,
    )
    assert config.catalogs["local"].origin is None
    assert list(tmp_path.iterdir()) == []


def test_everything_is_read(write: Write) -> None:
    root = write(FULL)
    config = load(root, env={"KEY": "hunter2"})
    disk = Storage.local(root.parent / "disk")
    assert config.root == root
    assert config.file == root / "helios.toml"
    assert config.default_catalog == "prod"
    assert set(config.catalogs) == {"local", "prod", "scratch"}
    prod = config.catalogs["prod"]
    assert prod == Catalog.local(
        "prod", root / "lake", {"io.retries": "3", "s3.secret-access-key": "hunter2"}, storage=disk
    )
    assert dict(prod.properties)["s3.secret-access-key"] == Secret("hunter2")
    assert "hunter2" not in repr(config)
    assert prod.origin == Origin("helios.toml", 3)
    assert config.storages == {"disk": disk}
    assert config.master == "spark://localhost:7077"
    assert config.spark_conf == {
        "spark.sql.shuffle.partitions": "8",
        "spark.sql.ansi.enabled": "true",
        "spark.memory.fraction": "0.5",
    }
    assert config.profile is None


@pytest.mark.parametrize(("argument", "variable"), [("dev", None), (None, "dev"), ("dev", "other")])
def test_a_profile_overrides(write: Write, argument: str | None, variable: str | None) -> None:
    env = {"KEY": "k", **({"HELIOS_PROFILE": variable} if variable else {})}
    config = load(write(FULL), argument, env)
    assert config.profile == "dev"
    assert config.default_catalog == "scratch"
    assert config.master == "local[2]"
    assert config.spark_conf["spark.sql.shuffle.partitions"] == "1"
    assert config.spark_conf["spark.sql.ansi.enabled"] == "true"
    assert config.catalogs["prod"].option("path") == "/dev"
    assert config.catalogs["prod"].storage == config.storages["disk"]


def test_an_empty_profile_variable_is_none(write: Write) -> None:
    assert load(write(FULL), env={"KEY": "k", "HELIOS_PROFILE": ""}).profile is None


def test_a_profile_that_changes_the_type_replaces_the_catalog(write: Write) -> None:
    root = write('[catalogs.c]\ntype = "local"\npath = "x"\n[profiles.test.catalogs.c]\ntype = "memory"\n')
    assert load(root, "test", {}).catalogs["c"] == Catalog.memory("c")


@pytest.mark.parametrize("name", ["type", "storage"])
def test_a_catalog_may_be_called_as_a_setting_is(write: Write, name: str) -> None:
    root = write(f'[catalogs.{name}]\ntype = "memory"\n[catalogs.b]\ntype = "memory"\n[profiles.p.catalogs.{name}]\n')
    assert set(load(root, "p", {}).catalogs) == {"local", name, "b"}


def test_the_nearest_file_counts(write: Write, tmp_path: Path) -> None:
    write('default_catalog = "outer"')
    script = tmp_path / "a" / "b" / "job.py"
    script.parent.mkdir(parents=True)
    script.touch()
    assert load(script, env={}).default_catalog == "outer"
    (tmp_path / "a" / "pyproject.toml").write_text("[tool.ruff]\nline-length = 1 # not helios\n")
    assert load(script, env={}).default_catalog == "outer"
    (tmp_path / "a" / "pyproject.toml").write_text('[project]\nname = "x"\n[tool.helios]\ndefault_catalog = "inner"\n')
    config = load(script, env={})
    assert (config.default_catalog, config.root) == ("inner", tmp_path / "a")
    assert config.catalogs["local"].option("path") == str(tmp_path / "a" / ".helios")
    (tmp_path / "a" / "helios.toml").write_text('default_catalog = "own"')
    assert load(script, env={}).default_catalog == "own"


@pytest.mark.parametrize(
    ("text", "counts"),
    [
        ("[tool.helios]\ndefault_catalog = 'own'", True),
        ("[tool]\nhelios.default_catalog = 'own'", True),
        ("[ 'tool' . \"helios\" ]\ndefault_catalog = 'own'", True),
        ("tool.helios.default_catalog = 'own'", True),
        ("tool = { helios = { default_catalog = 'own' } }", True),
        ("[tool.ruff]\nextend = 'helios.toml'\n[project]\ndependencies = ['helios-iceberg']", False),
        ("[tool]\nmypy.files = ['helios']", False),
    ],
)
def test_pyproject_counts_where_it_has_a_table_for_helios(
    write: Write, tmp_path: Path, text: str, counts: bool
) -> None:
    write('default_catalog = "outer"')
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "pyproject.toml").write_text(text)
    assert load(tmp_path / "a", env={}).default_catalog == ("own" if counts else "outer")


def test_local_can_be_moved(write: Write) -> None:
    root = write('[catalogs.local]\npath = "state"\n')
    assert load(root, env={}).catalogs["local"].option("path") == str(root / "state")


def test_a_configured_local_catalog_has_a_folder_of_its_own(write: Write) -> None:
    root = write('[catalogs.dev]\ntype = "local"\n')
    assert load(root, env={}).catalogs["dev"].option("path") == str(root / ".helios/catalogs/dev")


def test_windows_files_are_fine(write: Write) -> None:
    root = write(b"\xef\xbb\xbf" + FULL.replace("\n", "\r\n").encode())
    assert load(root, env={"KEY": "k"}) == load(write(FULL), env={"KEY": "k"})
    root = write(b"\xef\xbb\xbfdefault_catalog = 'x'\r\n\r\nmastre = 1\r\n")
    assert refused(root).startswith("helios.toml:3: mastre: unknown key")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "a = 1\n[catalogs.prod\n",
            "helios.toml:2: not TOML: Expected ']' at the end of a table declaration (at line 2, column 15).",
        ),
        ("a = 1\nb = [\n", "helios.toml:3: not TOML: Invalid value (at end of document)."),
        (
            '\ndefault_catalogue = "x"\n',
            "helios.toml:2: default_catalogue: unknown key 'default_catalogue'. Did you mean 'default_catalog'?",
        ),
        (
            "[catalog.prod]\n",
            "helios.toml:1: catalog: unknown key 'catalog'. Did you mean 'catalogs'?",
        ),
        (
            '[catalogs.prod]\ntype = "local"\npth = "x"\n',
            "helios.toml:3: catalogs.prod.pth: unknown key 'pth'. Did you mean 'path'?",
        ),
        (
            '[catalogs]\nprod = { type = "local", pth = "x" }\n',
            "helios.toml:2: catalogs.prod.pth: unknown key 'pth'. Did you mean 'path'?",
        ),
        (
            '[storages.disk]\ntype = "local"\npth = "x"\n',
            "helios.toml:3: storages.disk.pth: unknown key 'pth'. Did you mean 'path'?",
        ),
        ("[spark]\nmastre = 'x'\n", "helios.toml:2: spark.mastre: unknown key 'mastre'. Did you mean 'master'?"),
        (
            "[profiles.dev]\ncatalog = 1\n",
            "helios.toml:2: profiles.dev.catalog: unknown key 'catalog'. Did you mean 'catalogs'?",
        ),
        (
            "[profiles.dev.spark]\nmastre = 'x'\n",
            "helios.toml:2: profiles.dev.spark.mastre: unknown key 'mastre'. Did you mean 'master'?",
        ),
        (
            "[profiles.dev.catalogs.local]\npth = 'x'\n",
            "helios.toml:2: catalogs.local.pth: unknown key 'pth'. Did you mean 'path'?",
        ),
        (
            "[profiles.dev]\nprofiles = {}\n",
            "helios.toml:2: profiles.dev.profiles: unknown key 'profiles'. Known: catalogs, default_catalog, spark, "
            "storages.",
        ),
        (
            "[catalogs.prod]\ntype = 'memry'\n",
            "helios.toml:2: catalogs.prod.type: type 'memry' is unknown. Did you mean 'memory'?",
        ),
        (
            "[storages.disk]\ntype = 'lokal'\n",
            "helios.toml:2: storages.disk.type: type 'lokal' is unknown. Did you mean 'local'?",
        ),
        (
            "[catalogs.prod]\npath = 'x'\n",
            "helios.toml:1: catalogs.prod: it needs a type. Fix: set it to one of glue, hive, local, memory, "
            "nessie, rest.",
        ),
        ("[storages.disk]\ntype = 'local'\n", "helios.toml:1: storages.disk: it needs path."),
        (
            "[catalogs.local]\nstorage = 'disc'\n[storages.disk]\ntype = 'local'\npath = 'x'\n",
            "helios.toml:2: catalogs.local.storage: storage 'disc' is not declared. Did you mean 'disk'? "
            "Fix: declare it as [storages.disc].",
        ),
        (
            "[catalogs.m]\ntype = 'memory'\nstorage = 'd'\n[storages.d]\ntype = 'local'\npath = 'x'\n",
            "helios.toml:1: catalogs.m: catalog 'm': a memory catalog takes no local storage. There are none.",
        ),
        (
            "[catalogs.m]\ntype = 'memory'\nproperties.warehouse = 'x'\n",
            "helios.toml:1: catalogs.m: catalog 'm': property 'warehouse' is set by Helios for a memory catalog. "
            "Fix: leave it out.",
        ),
        (
            '[catalogs."prod-eu"]\n',
            "helios.toml:1: catalogs.prod-eu: 'prod-eu' is not a catalog name: use letters, digits and '_'.",
        ),
        ("default_catalog = 3\n", "helios.toml:1: default_catalog: must be text, not a number."),
        ("default_catalog = ''\n", "helios.toml:1: default_catalog: must not be empty."),
        ("catalogs = 3\n", "helios.toml:1: catalogs: must be a table, not a number. Fix: write [catalogs]."),
        (
            "[catalogs]\nprod = 'x'\n",
            "helios.toml:2: catalogs.prod: must be a table, not text. Fix: write [catalogs.prod].",
        ),
        ("[catalogs.c]\ntype = true\n", "helios.toml:2: catalogs.c.type: must be text, not a boolean."),
        ("[catalogs.local]\npath = 3\n", "helios.toml:2: catalogs.local.path: path must be text, not int."),
        (
            "[catalogs.local]\npath = 'a#b'\n",
            "helios.toml:2: catalogs.local.path: path 'a#b' must not contain '#': PyIceberg and SQLite's driver read "
            "it as a URL.",
        ),
        ("[spark]\nmaster = ['x']\n", "helios.toml:2: spark.master: must be text, not a list."),
        ("spark = 'x'\n", "helios.toml:1: spark: must be a table, not text. Fix: write [spark]."),
        (
            "[spark.conf]\na.b = [1]\n",
            "helios.toml:2: spark.conf.a.b: must be text, a number or a boolean, not a list.",
        ),
        ("profiles = 1\n", "helios.toml:1: profiles: must be a table, not a number. Fix: write [profiles]."),
        (
            "[profiles]\ndev = 1\n",
            "helios.toml:2: profiles.dev: must be a table, not a number. Fix: write [profiles.dev].",
        ),
    ],
)
def test_what_is_wrong_is_told_with_its_line(write: Write, text: str, message: str) -> None:
    assert refused(write(text)) == message


def test_lines_are_told_beside_texts_of_several_lines(write: Write) -> None:
    root = write('[spark.conf]\na = """\npth = 1\n[catalogs.local]\n"""\n\n[catalogs.local]\n\n"pth" = "x"\n')
    assert refused(root) == "helios.toml:9: catalogs.local.pth: unknown key 'pth'. Did you mean 'path'?"


def test_pyproject_is_told_by_its_own_name_and_lines(write: Write, tmp_path: Path) -> None:
    write('[project]\nname = "x"\n\n[tool.helios.spark]\nmastre = "x"\n', "pyproject.toml")
    assert refused(tmp_path) == "pyproject.toml:5: spark.mastre: unknown key 'mastre'. Did you mean 'master'?"
    write("[tool.helios]\nx = \n", "pyproject.toml")
    assert refused(tmp_path) == "pyproject.toml:2: not TOML: Invalid value (at line 2, column 5)."
    write("[tool]\nhelios = 1\n", "pyproject.toml")
    assert refused(tmp_path) == "pyproject.toml: tool.helios must be a table."


def test_a_file_that_is_not_text(write: Write) -> None:
    assert refused(write(b"a = '\xff'")) == "helios.toml is not UTF-8: invalid start byte. Fix: save it as UTF-8."


def test_an_unknown_profile(write: Write, tmp_path: Path) -> None:
    root = write("[profiles.dev]\n[profiles.prod]\n")
    assert refused(root, "prd") == (
        "helios.toml:1: profile 'prd' is unknown. Did you mean 'prod'? Fix: declare [profiles.prd] in helios.toml."
    )
    assert refused(root, env={"HELIOS_PROFILE": "zzz"}).startswith(
        "helios.toml:1: profile 'zzz' is unknown. Known: dev, prod."
    )
    (tmp_path / "helios.toml").unlink()
    assert refused(root, "dev") == (
        "profile 'dev' is unknown. There are none. Fix: declare [profiles.dev] in helios.toml."
    )


def test_an_unset_variable_names_the_key_and_the_variable(write: Write, server: None) -> None:
    root = write('[catalogs.prod]\ntype = "server"\nuri = "https://${PROD_URI}/v1"\ntoken = "${T}"\n')
    assert refused(root, env={"T": "hunter2"}) == (
        "helios.toml:3: catalogs.prod.uri: the environment variable 'PROD_URI' is not set. "
        "Fix: set PROD_URI, or give a default: ${PROD_URI:-value}."
    )
    config = load(root, env={"PROD_URI": "host", "T": "hunter2"})
    assert config.catalogs["prod"].option("uri") == "https://host/v1"
    assert config.catalogs["prod"].option("token") == Secret("hunter2")
    assert "hunter2" not in repr(config)


def test_a_variable_of_the_profile_is_told_by_its_line(write: Write) -> None:
    root = write('[catalogs.local]\npath = "x"\n[profiles.dev.catalogs.local]\npath = "${GONE}"\n')
    assert load(root, env={}).profile is None
    assert refused(root, "dev").startswith("helios.toml:4: catalogs.local.path: the environment variable 'GONE'")


def test_a_type_may_come_from_the_environment(write: Write) -> None:
    root = write('[catalogs.c]\ntype = "${KIND}"\n')
    assert load(root, env={"KIND": "memory"}).catalogs["c"].type == "memory"
    assert refused(root, env={"KIND": "memry"}) == (
        "helios.toml:2: catalogs.c.type: type 'memry' is unknown. Did you mean 'memory'?"
    )


@pytest.mark.parametrize("text", ["${", "${}", "${A", "${1A}", "${A-b}", "${A:-${B}}", "x${ A }"])
def test_a_dollar_brace_that_is_no_variable(write: Write, text: str) -> None:
    assert refused(write(f"[spark]\nmaster = '{text}'\n"), env={"A": "a"}) == (
        "helios.toml:2: spark.master: contains a '${' that does not begin a variable. "
        "Fix: write ${NAME} or ${NAME:-default}; for a literal ${, write $${."
    )


# Variables and profiles, whatever they hold

plain = st.text().filter(lambda text: "${" not in text)
# A "$" just before a variable would escape it.
around = plain.filter(lambda text: not text.endswith("$"))
names = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]*", fullmatch=True)


def fail(path: tuple[str, ...], what: str, fix: str | None = None) -> ConfigError:
    return ConfigError(f"{'.'.join(path)}: {what}", fix=fix)


@given(plain)
def test_text_without_variables_stays(text: str) -> None:
    assert expand({"a": text, "b": [text], "c": 1}, {}, fail) == {"a": text, "b": [text], "c": 1}


@given(around, names, st.text(), plain)
def test_a_variable_is_put_in_as_it_is(before: str, name: str, value: str, after: str) -> None:
    assert expand(f"{before}${{{name}}}{after}", {name: value}, fail) == before + value + after


@given(names, plain.filter(lambda text: "}" not in text), st.sampled_from([{}, {"empty": ""}]))
def test_a_default_stands_for_what_is_unset_or_empty(name: str, default: str, env: dict[str, str]) -> None:
    set_empty = {name: ""} if env else {}
    assert expand(f"${{{name}:-{default}}}", set_empty, fail) == default


@given(names, st.lists(st.sampled_from("abc"), min_size=1))
def test_an_unset_variable_is_an_error_at_any_depth(name: str, keys: list[str]) -> None:
    tree: Any = f"${{{name}}}"
    for key in reversed(keys):
        tree = {key: tree}
    with pytest.raises(ConfigError) as error:
        expand(tree, {}, fail)
    assert error.value.what == f"{'.'.join(keys)}: the environment variable {name!r} is not set."


@given(names)
def test_an_escaped_variable_is_plain_text(name: str) -> None:
    assert expand(f"$${{{name}}}", {name: "x"}, fail) == f"${{{name}}}"


leaves = st.one_of(st.integers(), st.text(max_size=3), st.booleans())
keys = st.sampled_from(["a", "b", "c"])
trees = st.dictionaries(keys, st.recursive(leaves, lambda inner: st.dictionaries(keys, inner, max_size=3)), max_size=3)


def paths(tree: dict[str, Any], at: tuple[str, ...] = ()) -> dict[tuple[str, ...], Any]:
    found: dict[tuple[str, ...], Any] = {}
    for key, value in tree.items():
        found |= paths(value, (*at, key)) if isinstance(value, dict) and value else {(*at, key): value}
    return found


def covers(one: tuple[str, ...], other: tuple[str, ...]) -> bool:
    return one[: len(other)] == other or other[: len(one)] == one


@given(trees, trees)
def test_a_profile_wins_and_the_rest_stays(base: dict[str, Any], overrides: dict[str, Any]) -> None:
    merged = paths(merge(base, overrides))
    over = {path: value for path, value in paths(overrides).items() if value != {}}
    assert over.items() <= merged.items()
    untouched = {p: v for p, v in paths(base).items() if not any(covers(p, other) for other in paths(overrides))}
    assert untouched.items() <= merged.items()
    assert merge(merge(base, overrides), overrides) == merge(base, overrides)
    assert merge(base, {}) == base
    assert merge({}, overrides) == overrides


# Names


@pytest.fixture
def config(tmp_path: Path) -> Config:
    catalogs = {"local": Catalog.local(path=tmp_path), "prod": Catalog.memory("prod")}
    return Config(tmp_path, None, "local", catalogs, {}, "local[*]", {}, None)


def table(text: str, config: Config, catalog: Catalog | str | None = None, **script: Catalog) -> TableName:
    return resolve(Identifier.parse(text), catalog, script, config, HERE)


def test_two_parts_are_in_the_default_catalog(config: Config) -> None:
    name = table("sales.orders", config)
    assert (name.catalog, name.namespace, name.table) == (config.catalogs["local"], ("sales",), "orders")
    assert name.text == "local.sales.orders"
    assert name.name_in_catalog == "sales.orders"
    assert table("prod.orders", config).text == "local.prod.orders"


def test_three_parts_begin_with_a_catalog(config: Config) -> None:
    name = table("prod.sales.eu.orders", config)
    assert (name.catalog, name.namespace, name.table) == (config.catalogs["prod"], ("sales", "eu"), "orders")
    assert name.sql == "`prod`.`sales`.`eu`.`orders`"


def test_a_given_catalog_takes_all_parts(config: Config) -> None:
    own = Catalog.memory("own")
    assert table("prod.sales.orders", config, catalog=own).text == "own.prod.sales.orders"
    assert table("prod.sales.orders", config, catalog="local").text == "local.prod.sales.orders"


def test_the_scripts_catalogs_come_first(config: Config) -> None:
    own = Catalog.memory("prod", properties={"mine": "yes"})
    assert table("prod.sales.orders", config, prod=own).catalog is own
    assert table("sales.orders", config, catalog="prod", prod=own).catalog is own


def test_the_default_catalog_may_be_the_scripts(config: Config) -> None:
    default = Config(config.root, None, "own", config.catalogs, {}, "", {}, None)
    own = Catalog.memory("own")
    assert table("a.b", default, own=own).catalog is own
    with pytest.raises(NotFound) as error:
        table("a.b", default)
    assert str(error.value) == (
        "job.py:7: a.b: the default catalog 'own' is not declared. Known: local, prod. "
        "Fix: declare it in the script, or as [catalogs.own] in helios.toml."
    )


def test_a_typo_never_makes_a_table(config: Config) -> None:
    with pytest.raises(NotFound) as error:
        table("prodd.sales.orders", config)
    assert str(error.value) == (
        "job.py:7: prodd.sales.orders: catalog 'prodd' is not declared. Did you mean 'prod'? "
        "Fix: declare it in the script, or as [catalogs.prodd] in helios.toml. "
        'If it is a namespace, pass catalog="local".'
    )
    with pytest.raises(NotFound) as error:
        table("sales.orders", config, catalog="prodd")
    assert str(error.value) == (
        "job.py:7: catalog='prodd': catalog 'prodd' is not declared. Did you mean 'prod'? "
        "Fix: declare it in the script, or as [catalogs.prodd] in helios.toml."
    )


def test_odd_names_are_quoted(config: Config) -> None:
    name = table("prod.sales.`my.orders`", config)
    assert name.text == "prod.sales.`my.orders`"
    assert name.name_in_catalog == "sales.`my.orders`"
    assert name.sql == "`prod`.`sales`.`my.orders`"
    assert Identifier.parse(name.text).parts == ("prod", "sales", "my.orders")
    assert TableName(config.catalogs["prod"], ("a`b",), "t").sql == "`prod`.`a``b`.`t`"


def test_flags_lists_and_secrets_of_servers(write: Write) -> None:
    folder = write(
        "[storages.lake]\ntype = 's3'\nendpoint = 'https://s3'\npath_style = true\n"
        "access_key_id = '${K}'\nsecret_access_key = '${S}'\n"
        "[catalogs.prod]\ntype = 'rest'\nuri = ['https://a', 'https://${HOST}']\nstorage = 'lake'\n"
    )
    config = load(folder, env={"K": "key", "S": "hunter2", "HOST": "b"})
    catalog = config.catalogs["prod"]
    assert catalog.option("uri") == ("https://a", "https://b")
    assert catalog.storage is not None
    assert catalog.storage.option("path_style") is True
    assert "hunter2" not in repr(config)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[storages.x]\ntype = 's3'\npath_style = 'yes'\n", "storages.x.path_style: path_style must be true or false"),
        ("[storages.x]\ntype = 's3'\naccess_key_id = 'k'\n", "access_key_id is given without secret_access_key"),
        ("[catalogs.x]\ntype = 'rest'\nuri = 'http://far'\n", "catalogs.x.uri: uri 'http://far' is not encrypted"),
        ("[catalogs.x]\ntype = 'rest'\nuri = 'https://x'\ncredentail = 'a:b'\n", "Did you mean 'credential'?"),
    ],
)
def test_faults_of_servers_are_told_with_their_line(write: Write, text: str, message: str) -> None:
    told = refused(write(text))
    assert message in told
    assert told.startswith("helios.toml:")
