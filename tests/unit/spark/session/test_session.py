"""The configuration of a session before it starts."""

from __future__ import annotations

from helios.spark.session import launch, session


def test_the_jvms_log_configuration_lies_beside_the_session() -> None:
    assert "rootLogger.level = ${sys:helios.log" in launch.LOG_CONFIG.read_text()


def test_a_failed_start_is_told_by_the_jvms_own_line() -> None:
    log = ["WARNING: incubator modules", "Error: Could not create the Java Virtual Machine."]
    assert session.failure_reason(RuntimeError("Java gateway process exited"), log) == log[1]
    assert session.failure_reason(RuntimeError("Java gateway process exited"), []) == "Java gateway process exited"


def test_a_class_that_failed_to_begin_is_told_by_its_cause() -> None:
    log = [
        'Exception in thread "main" java.lang.ExceptionInInitializerError',
        "\tat org.apache.spark.deploy.SparkSubmit.main(SparkSubmit.scala)",
        "Caused by: java.net.UnknownHostException: node-7: Name or service not known",
    ]
    told = session.failure_reason(RuntimeError("Java gateway process exited"), log)
    assert told == "java.net.UnknownHostException: node-7: Name or service not known"
    assert session.failure_reason(RuntimeError("Java gateway process exited"), log[:2]) == log[0]
