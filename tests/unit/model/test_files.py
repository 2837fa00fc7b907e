"""Declared files: formats, options, and what happens to rows and files that cannot be read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from helios import Files
from helios.errors import DeclarationError
from helios.sources.files.formats import FORMATS, REFUSED
from helios.sources.files.option_values import CHECKS, FREE_TEXTS

pytestmark = pytest.mark.promise("words")

CSV = Files.source("a.csv")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("heder", r"option\(heder=\.\.\.\): csv files have no such option\. Did you mean 'header'\?"),
        ("seperator", r"Did you mean 'sep'\?"),
        ("primitivesAsString", r"It is an option of json\."),
        ("mode", r"is not passed to Spark\. Fix: say what happens to rows that do not parse with \.on_bad_row"),
        ("pathGlobFilter", "Fix: write it into the path"),
        ("maxFilesPerTrigger", r"Fix: write \.incremental\(max_files="),
    ],
)
def test_an_option_that_is_none(name: str, message: str) -> None:
    with pytest.raises(DeclarationError, match=rf"test_files\.py:\d+: .*{message}"):
        CSV.option(**{name: "x"})


def test_options_take_what_python_has() -> None:
    source = CSV.option(header=False, maxColumns=5, SEP=";")
    assert source.reader_options() == {"header": "false", "escape": '"', "maxColumns": "5", "sep": ";"}
    with pytest.raises(DeclarationError, match="the value is list"):
        CSV.option(**{"nullValue": ["NA"]})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("format", "option", "value", "message"),
    [
        ("csv", "header", "ture", r"option\(header='ture'\): it is neither true nor false\. Did you mean 'true'\?"),
        ("csv", "Header", 1, r"option\(header='1'\): .* Fix: give True or False"),
        ("json", "multiLine", "yes", "neither true nor false"),
        ("text", "wholetext", "no", "neither true nor false"),
        ("csv", "sep", "", r"option\(sep=''\): a separator has at least one character"),
        ("csv", "delimiter", "\\", "after a backslash only"),
        ("csv", "sep", "\\k", "after a backslash only"),
        ("csv", "quote", "''", r"one character, and the value has 2\. Fix: give one character, or \"\" for none"),
        ("csv", "escape", "ab", "one character"),
        ("csv", "comment", "//", "one character"),
        ("csv", "maxColumns", "many", "a positive whole number"),
        ("csv", "maxColumns", 5.0, "a positive whole number"),
        ("csv", "maxColumns", 0, "a positive whole number"),
        ("csv", "maxColumns", True, "a positive whole number"),
        ("csv", "maxCharsPerColumn", -2, "or -1 for no bound"),
        ("csv", "lineSep", "abc", "one or two characters"),
        ("json", "lineSep", "", "at least one character"),
        ("csv", "samplingRatio", 0, "above 0, up to 1"),
        ("csv", "samplingRatio", "half", "above 0, up to 1"),
        ("csv", "unescapedQuoteHandling", "SKIP_VALU", "Did you mean 'SKIP_VALUE'"),
        ("parquet", "datetimeRebaseMode", "LEGCY", "Did you mean 'LEGACY'"),
        ("parquet", "int96RebaseMode", "legacy", "Did you mean 'LEGACY'"),
    ],
)
def test_a_value_that_an_option_does_not_take(format: str, option: str, value: Any, message: str) -> None:
    with pytest.raises(DeclarationError, match=rf"test_files\.py:\d+: .*{message}"):
        Files.source("in", format).option(**{option: value})


@pytest.mark.parametrize(
    ("format", "option", "value"),
    [
        *[("csv", "header", value) for value in (True, "TRUE", "False")],
        *[("csv", "sep", value) for value in (";", "\\t", "\t", "||", "\\\\", "\x00", "\n")],
        *[("csv", option, value) for option in ("quote", "escape", "comment") for value in ("", "'", "\\")],
        ("csv", "maxColumns", 5), ("csv", "maxCharsPerColumn", -1), ("csv", "inputBufferSize", "128"),
        ("csv", "lineSep", "\r\n"), ("json", "lineSep", "abc"),
        *[("csv", "samplingRatio", value) for value in (1, 0.1, "1e-3", ".5")],
        ("csv", "unescapedQuoteHandling", "stop_at_closing_quote"), ("avro", "datetimeRebaseMode", "CORRECTED"),
    ],
)  # fmt: skip
def test_a_value_that_an_option_takes(format: str, option: str, value: Any) -> None:
    given = Files.source("in", format).option(**{option: value}).options
    assert given == ((option, str(value).lower() if isinstance(value, bool) else str(value)),)


def test_each_option_has_a_kind_of_value() -> None:
    kinds = [*(names for names, _ in CHECKS), FREE_TEXTS]
    options = {option for row in FORMATS.values() for option in row.options}
    assert [option for option in sorted(options) if sum(option in kind for kind in kinds) != 1] == []
    assert frozenset().union(*kinds) == options


def test_no_option_is_both_known_and_refused() -> None:
    assert {option for row in FORMATS.values() for option in row.options} & set(REFUSED) == set()


@pytest.mark.parametrize(
    ("path", "told"),
    [
        ("x/*.csv", "csv"),
        ("a.jsonl.zst", "json"),
        ("a.snappy.parquet", "parquet"),
        ("a.avro", "avro"),
        ("a.txt", "text"),
    ],
)
def test_a_path_tells_its_format(path: str, told: str) -> None:
    assert Files.source(path).format == told


def test_a_folder_tells_its_format_by_its_files(tmp_path: Path) -> None:
    (tmp_path / "in" / "day=1").mkdir(parents=True)
    with pytest.raises(DeclarationError, match="the format is not clear from the path"):
        Files.source(str(tmp_path / "in"))
    (tmp_path / "in" / "day=1" / "part-0.csv.gz").touch()
    (tmp_path / "in" / "_SUCCESS").touch()
    assert Files.source(str(tmp_path / "in")).format == "csv"
    assert Files.source(str(tmp_path / "*")).format == "csv"
    (tmp_path / "in" / "b.json").touch()
    with pytest.raises(DeclarationError, match=r"Its files are csv and json\."):
        Files.source(str(tmp_path / "in"))


@pytest.mark.parametrize(
    ("declare", "message"),
    [
        (lambda: Files.source("a.csv", extra="ignore"), "extra= applies to columns that schema= lacks"),
        (lambda: Files.source("a.csv", rescued="_r"), "rescued= applies to columns that schema= lacks"),
        (lambda: Files.source("a.json", schema="at timestamp", timestamps="m"), r"timestamps\('m'\) is unknown"),
        (
            lambda: Files.source("a.json", timestamps="ms"),
            "timestamps= applies to json numbers in columns that schema=",
        ),
        (
            lambda: Files.source("a.csv", schema="at timestamp", timestamps="ms"),
            "timestamps= applies to json numbers",
        ),
        (
            lambda: Files.source("a.json", schema="at timestamp", timestamps="ms").option(timestampFormat="yyyy"),
            "without the option timestampFormat",
        ),
        (lambda: Files.source("a.csv", schema="id int", extra="drop"), r"extra\('drop'\) is unknown"),
        (lambda: CSV.on_bad_row("skip"), r"on_bad_row\('skip'\) is unknown"),
        (lambda: CSV.on_bad_file("drop"), r"on_bad_file\('drop'\) is unknown"),
    ],
)
def test_what_does_not_fit(declare: Any, message: str) -> None:
    with pytest.raises(DeclarationError, match=message):
        declare()


def test_avro_brings_its_jar() -> None:
    assert Files.source("a.avro").jars == ("avro",)
    assert CSV.jars == ()


def test_setting_aside_needs_a_quarantine() -> None:
    assert CSV.quarantining_calls == ()
    assert CSV.on_bad_row("quarantine").on_bad_file("quarantine").quarantining_calls == (
        'on_bad_row("quarantine")',
        'on_bad_file("quarantine")',
    )


REFUSED_VALUES: tuple[tuple[str, dict[str, str], str], ...] = (
    ("csv", {"sep": "aab"}, "may not find the separator"),
    ("csv", {"unescapedQuoteHandling": "SKIP_VALUE"}, "drops quotes or values.*STOP_AT_DELIMITER"),
    ("csv", {"unescapedQuoteHandling": "back_to_delimiter"}, "drops quotes or values"),
    ("csv", {"sep": "||", "nullValue": "NA"}, r"nullValue=.*several characters, '\|\|'.*nullif"),
    ("csv", {"emptyValue": "-", "delimiter": "ab"}, "emptyValue=.*several characters"),
    ("csv", {"timestampFormat": "yyyy-MM-dd HH:mm:ss.SSSSSSSSS"}, "truncates to microseconds"),
    ("json", {"timestampNTZFormat": "yyyy-MM-dd HH:mm:ss[.SSSSSSS]"}, "truncates to microseconds"),
    ("json", {"enableDateTimeParsingFallback": "true"}, "not passed to Spark.*leave it out"),
)


@pytest.mark.parametrize(("format", "options", "told"), REFUSED_VALUES)
def test_options_that_lose_something_silently_are_refused(format: str, options: dict[str, str], told: str) -> None:
    with pytest.raises(DeclarationError, match=f"(?s){told}"):
        Files.source("in", format).option(**options)
    if len(options) > 1:
        one, two = options.items()
        with pytest.raises(DeclarationError, match=f"(?s){told}"):
            Files.source("in", format).option(**dict([two])).option(**dict([one]))


def test_options_that_lose_nothing_pass() -> None:
    source = Files.source("in", "csv").option(
        sep="\\t", nullValue="NA", timestampFormat="yyyy'SSSSSSS' HH:mm:ss.SSSSSS"
    )
    assert source.option(unescapedQuoteHandling="stop_at_closing_quote").reader_options()["nullValue"] == "NA"


def test_two_stars_are_no_levels() -> None:
    with pytest.raises(DeclarationError, match=r"single level.*write the folder"):
        Files.source("in/**/*.csv")
