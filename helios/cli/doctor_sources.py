"""The checks of `helios doctor` for the services that a script's sources read: brokers, topics, schema registries."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from helios.cli.doctor_checks import Check, run_check
from helios.errors import HeliosError
from helios.model.flow import Source, flows

if TYPE_CHECKING:
    from helios.cli.options import Loaded
    from helios.sources.common.doctor_check import DoctorCheck


def check_sources(loaded: Loaded) -> list[Check]:
    """Checks the services that a script's sources read. The list is empty if no source reads from a service."""
    from pkgutil import resolve_name

    from helios.sources.kinds import source_kind

    declared = (flow.source for pipeline in loaded.pipelines for flow in flows(pipeline.stream))
    sources = {str(source.origin) + source.label(): source for source in declared if source_kind(source).doctor_checks}
    # Each source with two lists of probes: those that need no JVM, and those that do.
    by_source = [(source, resolve_name(str(source_kind(source).doctor_checks))(source)) for source in sources.values()]
    checks: list[Check] = []
    spark_probes: list[DoctorCheck] = []
    jars: list[str] = []
    for source, (without_jvm, with_jvm) in by_source:
        results = [run_check(probe.name, probe.check, probe.address, probe.remedy) for probe in without_jvm]
        checks += results
        needed = [check for check, probe in zip(results, without_jvm, strict=True) if probe.required_by_jvm_checks]
        if needed and not any(check.ok for check in needed):
            checks += [Check(probe.name, None, f"not checked: {needed[0].name} does not answer") for probe in with_jvm]
        else:
            spark_probes += with_jvm
            jars += _jars(source)
    if spark_probes:
        checks += _with_spark(loaded, spark_probes, jars)
    return checks


def _jars(source: Source) -> Iterable[str]:
    from helios.sources.kinds import source_kind

    return (*source_kind(source).jars, *source.jars)


def _with_spark(loaded: Loaded, probes: list[DoctorCheck], jars: list[str]) -> list[Check]:
    """Makes the checks that need a JVM, because they use Kafka's Java clients."""
    from helios.spark.session import session

    config = replace(loaded.context.config, master="local[1]")
    try:
        spark = session.start(config, tuple(dict.fromkeys(("iceberg", "sqlite", *jars))))
    except HeliosError as error:
        return [Check(probe.name, False, error.what, fix=error.fix) for probe in probes]
    try:
        return [run_check(probe.name, probe.check, probe.address, probe.remedy) for probe in probes]
    finally:
        spark.stop()
