"""What `make test` runs: every test without a JVM, and for each promise the tests that show it best.

`make test-all` runs all others but those that are marked `slow`, and `make test-slow` these: tests of minutes, and of
many cases of one kind those that `make test-all` leaves out. The marks `short`, and `unit`, `spark` or `process` for
what a test costs, are set here and in no test's file.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
FOLDERS = ("unit", "streaming", "integration", "matrix", "cluster", "outage", "served", "services", "kafka", "compat")
SERVERS = ("matrix", "cluster", "outage", "served", "services", "kafka")

STREAMING, CONFORMANCE = "tests/streaming", "tests/conformance"


@dataclass(frozen=True)
class Promise:
    """A promise, and its tests in `make test`.

    Attributes:
        says: The promise.
        tests: A file, a test, or a test with parameters; all that begin so are meant.
        mode: Of tests that run in every write mode: this one alone.
    """

    says: str
    tests: tuple[str, ...]
    mode: str | None = None

    def shows(self, item: pytest.Item) -> bool:
        """Whether a test is one of these."""
        if self.mode is not None and parameter(item, "name") != self.mode:
            return False
        return any(within(item.nodeid, name) for name in self.tests)


def within(nodeid: str, name: str) -> bool:
    """Whether a test is a file's, or has a name, whatever its parameters.

    Examples:
        >>> within("tests/a.py::test_b[1]", "tests/a.py"), within("tests/a.py::test_b[1]", "tests/a.py::test_b")
        (True, True)
        >>> within("tests/a.py::test_bc", "tests/a.py::test_b")
        False
    """
    return nodeid.startswith(name) and nodeid[len(name) : len(name) + 1] in ("", "/", ":", "[")


def parameter(item: pytest.Item, name: str) -> object:
    """The value of a test's parameter, if it has one."""
    return item.callspec.params.get(name) if isinstance(item, pytest.Function) and hasattr(item, "callspec") else None


def of(file: str, *tests: str) -> tuple[str, ...]:
    """The names of tests of a file."""
    return tuple(f"{file}::{test}" for test in tests)


PROMISES = (
    Promise(
        "A kill -9 of `helios run` between the commit and the checkpoint's log loses no row and doubles none.",
        of("tests/matrix/test_promises.py", "test_append[local-local]"),
    ),
    Promise(
        "`helios init`, `run`, `tables`, `schema`, `snapshots` and `doctor`, from an empty folder to rows.",
        of("tests/integration/test_cli.py", "test_from_an_empty_folder_to_rows_and_what_the_table_commands_say"),
    ),
    Promise(
        "A webhook that was answered with 200 is in the table once.",
        of(f"{STREAMING}/test_webhooks.py", "test_a_run_receives_and_commits"),
    ),
    Promise(
        "An append meets every failure, and each row is there once.",
        (CONFORMANCE,),
        mode="append",
    ),
    Promise(
        "Every write mode survives a driver that dies between its commit and Spark's checkpoint.",
        of(
            f"{CONFORMANCE}/test_failures.py",
            "test_a_driver_that_dies_between_the_commit_and_sparks_checkpoint",
        ),
    ),
    Promise(
        "An overwrite rejects what it has not seen; a batch of two operations is validated as one.",
        of(
            f"{CONFORMANCE}/test_drivers.py",
            "test_an_overwrite_rejects_what_came_right_after_the_look_up[overwrite]",
        ),
    ),
    Promise(
        "Main shows only batches whose audit passed, though the driver dies between staging and publication.",
        of(
            f"{CONFORMANCE}/test_audited.py",
            "test_a_driver_that_dies_at_the_staging[after-audit]",
            "test_a_batch_that_fails_its_audit",
        ),
    ),
    Promise(
        "Rows that a mode cannot take are a clear error, and the table stays as it was.",
        of(
            f"{CONFORMANCE}/test_bad_input.py",
            *(
                f"test_bad_rows_leave_the_table_as_it_was[-{name}]"
                for name in (
                    "upsert-null-key",
                    "upsert-two-rows-of-a-key",
                    "overwrite-outside-the-filter",
                    "append-text-for-a-number",
                    "expectation",
                    "audit",
                )
            ),
        ),
    ),
    Promise(
        "Exactly once: replays, lost and restored checkpoints, rollbacks, a second and a stale driver.",
        of(
            f"{STREAMING}/test_exactly_once.py",
            "test_a_replay_after_compaction_and_expiry_adds_nothing",
            "test_all_commits_forgotten_and_replayed_in_order",
            "test_a_target_that_was_rolled_back_stops_the_run",
            "test_a_target_that_was_replaced_by_a_new_table_is_refused",
            "test_a_checkpoint_restored_from_a_backup_is_refused",
            "test_a_lost_checkpoint_is_refused_and_resumed",
            "test_a_checkpoint_that_lost_a_file_is_refused",
            "test_a_checkpoint_of_another_pipeline_is_refused",
            "test_a_renamed_pipeline_moves_its_ledger_once",
            "test_a_second_live_driver_is_refused_and_a_dead_ones_lease_is_not_honoured",
            "test_a_stale_driver_stops_at_its_next_batch",
            "test_a_zombie_is_rejected_between_its_own_check_and_its_commit",
            "test_the_record_is_in_the_same_commit_as_the_data",
            "test_no_record_and_no_stamp_cannot_prove_absence",
            "test_a_full_refresh_empties_the_target_in_one_snapshot_and_begins_anew",
        ),
    ),
    Promise(
        "A predicate finds its rows, NaN and both zeros too, whatever the bounds of files and the name of a table.",
        of(
            f"{STREAMING}/test_float_bounds.py",
            "test_files_of_one_commit_after_another",
            "test_a_field_is_not_taken_for_the_column_of_its_name[int-off]",
        ),
    ),
    Promise(
        "A target that lost a batch is told whatever has happened since, and tables of other writers go on.",
        of(
            f"{STREAMING}/test_rollbacks.py",
            "test_the_same_by_the_commands_of_helios_alone",
            "test_a_table_of_others_goes_on_after_expiry[compaction-append-metadata]",
        ),
    ),
    Promise(
        "Batch and incremental appends: every row once, and the table as declared.", (f"{STREAMING}/test_append.py",)
    ),
    Promise(
        "A batch pipeline appends no window and no part of one twice.",
        of(f"{STREAMING}/test_again.py", "test_windows_are_appended_once"),
    ),
    Promise(
        "A followed table: where it begins, what bounds a batch, overwrites, expiry, pushed predicates.",
        of(
            f"{STREAMING}/test_sources.py",
            "test_each_start_delivers_what_it_says",
            "test_a_state_of_the_past_and_then_every_later_commit",
            "test_batches_are_bounded_by_whole_files_the_state_too",
            "test_overwrites_and_deletes_stop_a_reader_or_are_skipped",
            "test_a_next_snapshot_that_has_expired",
            "test_rows_between_two_points",
            "test_files_that_cannot_match_are_not_opened",
        ),
    ),
    Promise(
        "A folder of files: each file once, by its own columns.",
        of(
            f"{STREAMING}/test_files.py",
            "test_a_followed_folder_of_csv_with_windows_line_endings",
            "test_a_replayed_batch_of_files_adds_nothing[1]",
            "test_parquet_tells_its_own_schema_and_json_is_inferred",
        ),
    ),
    Promise(
        "A line of a file is a row, or a bad row with its text.",
        (
            *of(
                f"{STREAMING}/test_csv_lines.py",
                "test_a_quote_that_is_not_closed[a line break]",
                "test_the_parts_of_a_large_file",
            ),
            *of(f"{STREAMING}/test_json_values.py", "test_names_go_without_regard_to_case"),
        ),
    ),
    Promise(
        "Changes of a table, row by row, and what follows them equals the table.",
        (
            *of(
                f"{STREAMING}/test_changes_engine.py",
                "test_replayed_changes_equal_the_table[cow2-2]",
                "test_keys_pair_updates",
                "test_lineage_pairs_updates[merge-on-read]",
                "test_equality_deletes_are_refused",
            ),
            *of(f"{STREAMING}/test_views.py", "test_a_view_after_a_replay"),
        ),
    ),
    Promise("Each declared step gives what it says, in batches and in streams.", (f"{STREAMING}/test_steps.py",)),
    Promise(
        "Streams that keep state: windows, deduplication, joins.",
        (
            *of(
                f"{STREAMING}/test_stateful.py",
                "test_windows_are_appended_once_when_the_watermark_has_passed_them",
                "test_a_changed_aggregate_is_refused",
                "test_dedupe_within_a_watermark",
                "test_two_streams_are_joined",
            ),
            *of(
                f"{STREAMING}/test_dedupe.py",
                "test_a_backfill_keeps_rows_of_a_key_that_lie_far_apart",
                "test_late_rows_are_counted_and_told_with_their_batch[dedupe]",
            ),
        ),
    ),
    Promise(
        "A joined table is seen as it was at each row's time, and rows that come too late are set aside.",
        (
            *of(f"{STREAMING}/test_as_of.py", "test_the_borders_of_versions"),
            *of(f"{STREAMING}/test_over_time.py", "test_late_rows_go_to_the_quarantine_once_through_a_replay"),
        ),
    ),
    Promise("Each write mode does to a table what it says.", (f"{STREAMING}/test_modes.py",)),
    Promise(
        "Columns follow the stream, and nothing is dropped silently.",
        of(
            f"{STREAMING}/test_evolve_api.py",
            "test_everything_at_once_is_one_commit_that_keeps_every_value",
            "test_rows_are_aligned_at_every_level_and_nulls_stay_nulls",
            "test_a_null_never_reaches_a_required_column",
        ),
    ),
    Promise(
        "Rejected rows and batches are set aside, and come back once when they are mended.",
        of(
            f"{STREAMING}/test_quarantine.py",
            "test_a_batch_that_fails_its_audit_is_set_aside_and_the_next_run_goes_on",
            "test_mended_rows_are_replayed_once_and_the_others_stay",
        ),
    ),
    Promise(
        "Upkeep beside a writer: compaction, expiry that keeps what a reader needs, orphans.",
        (
            f"{STREAMING}/test_tend.py",
            *of(
                f"{STREAMING}/test_maintain.py",
                "test_expiry_keeps_what_a_reader_still_needs",
                "test_orphan_files_of_a_day_and_more_go",
            ),
        ),
    ),
    Promise(
        "Several pipelines in one session: failures, stops, handles, and what DuckDB and Polars read.",
        (f"{STREAMING}/test_runner.py",),
    ),
    Promise(
        "What an upsert deleted on v3 is shown neither by PyIceberg nor by DuckDB nor by Polars.",
        of(f"{STREAMING}/test_readers.py", "test_what_an_upsert_deleted_is_shown_by_no_reader[plain]"),
    ),
    Promise(
        "A routed batch whose driver died between two tables is completed, and a conflict is tried four times in all.",
        (
            *of(f"{STREAMING}/test_routes.py", "test_a_driver_that_dies_between_two_tables_leaves_a_part"),
            *of(f"{STREAMING}/test_retries.py", "test_a_batch_has_four_tries_in_all"),
        ),
    ),
    Promise(
        "A new kind of source is followed, each row once, by its one file, one row and one protocol.",
        of(f"{STREAMING}/test_toy_source.py", "test_it_is_followed_once_each_through_restarts_and_a_lost_commit"),
    ),
    Promise(
        "A batch that has ended keeps none of the JVM's objects.",
        of(
            f"{STREAMING}/test_life.py",
            "test_batches_leave_no_objects_in_the_jvm[append]",
            "test_an_object_that_a_callback_returns_outlives_its_way_to_the_jvm",
        ),
    ),
    Promise("Damaged sources are named.", of(f"{STREAMING}/test_bad_sources.py", "test_damaged_metadata_is_named")),
    Promise(
        "An upsert and a delete open only the files of their keys.",
        of(f"{STREAMING}/test_reach.py", "test_a_delete_opens_only_the_files_of_its_keys"),
    ),
)


LONG = (
    *of(
        f"{CONFORMANCE}/test_failures.py",
        "test_compaction_between_two_batches",
        "test_another_writer_between_two_batches",
    ),
    *of(f"{STREAMING}/test_csv_lines.py", "test_many_columns"),
    *of(f"{STREAMING}/test_kills.py", "test_every_row_once_after_kills"),
    *of(
        f"{STREAMING}/test_references.py",
        "test_a_view_equals_the_recompute[2-copy-on-write]",
        "test_readers_of_a_table_under_upkeep",
    ),
    *of(f"{STREAMING}/test_changes_engine.py", "test_replayed_changes_equal_the_table[mor3-5]"),
    *of(f"{STREAMING}/test_quarantine.py", "test_null_keys_and_deletes_share_the_memory_of_the_pipeline"),
    *of(f"{STREAMING}/test_views.py", "test_a_view_equals_the_full_recompute[3-merge-on-read]"),
    *of(f"{STREAMING}/test_changes_engine.py", "test_replayed_changes_equal_the_table[mor2-3]"),
    *of(f"{STREAMING}/test_stateful.py", "test_sessions_equal_the_reference[True]"),
    *of("tests/kafka/test_mirror.py", "test_tables_that_change_together"),
    *of(
        "tests/kafka/test_grown_topics.py",
        "test_snapshots_and_changes_of_a_topic_that_was_given_partitions[2-False]",
        "test_snapshots_and_changes_of_a_topic_that_was_given_partitions[1-True]",
    ),
    *of(
        "tests/kafka/test_debezium.py",
        "test_values_that_do_not_fit_their_type_are_bad",
        "test_snapshots_and_changes_go_by_kafkas_order[4]",
    ),
)
"""Tests of half a minute that would take CI over its hour: `make test-slow` alone runs them."""

SAMPLED = {
    f"{CONFORMANCE}/test_failures.py": 5,
    f"{CONFORMANCE}/test_drivers.py": 5,
    f"{CONFORMANCE}/test_bad_input.py": 4,
    "tests/compat/test_compat.py": 6,
    "tests/outage/test_commits.py": 4,
    "tests/outage/test_outages.py": 2,
    **dict.fromkeys(of("tests/matrix/test_promises.py", "test_files", "test_tag", "test_expire", "test_snapshots"), 2),
    f"{STREAMING}/test_file_formats.py": 3,
    f"{STREAMING}/test_file_types.py": 3,
    f"{STREAMING}/test_json_values.py": 3,
    f"{STREAMING}/test_text_casts.py": 3,
    f"{STREAMING}/test_csv_lines.py": 2,
    f"{STREAMING}/test_whole_files.py": 3,
    f"{STREAMING}/test_bad_sources.py": 3,
    f"{STREAMING}/test_rollbacks.py": 3,
    f"{STREAMING}/test_reach.py": 3,
    f"{STREAMING}/test_readers.py": 2,
    f"{STREAMING}/test_files_accounts.py": 4,
    f"{STREAMING}/test_sink.py": 2,
    f"{STREAMING}/test_demands.py": 2,
    f"{STREAMING}/test_file_order.py": 2,
    f"{STREAMING}/test_quarantine.py": 2,
    f"{STREAMING}/test_again.py": 2,
    f"{STREAMING}/test_evolve_api.py": 3,
    f"{STREAMING}/test_maintain.py": 3,
    CONFORMANCE: 3,
    STREAMING: 3,
    "tests/kafka": 3,
    "tests/served": 2,
}
"""Tests, files and folders with tests of many cases: CI takes one case in so many, and one of each test at least, and
`make test-slow` the others. The first row that fits is meant.
"""


def mark_all(items: Sequence[pytest.Item]) -> None:
    """Marks tests, and as slow the cases that CI does not take."""
    cases: dict[str, list[pytest.Function]] = {}
    for item in items:
        mark(item)
        marked = item.get_closest_marker("short") or item.get_closest_marker("slow")
        if not marked and isinstance(item, pytest.Function) and hasattr(item, "callspec"):
            cases.setdefault(item.nodeid.partition("[")[0], []).append(item)
    for name, found in cases.items():
        for item in left_to_the_slow_run(name, found):
            item.add_marker("slow")


def left_to_the_slow_run(name: str, cases: Sequence[pytest.Function]) -> list[pytest.Function]:
    """The cases of a test that CI does not take, by the places of their parameters among those of the test."""
    every = min(len(cases), next((every for sampled, every in SAMPLED.items() if within(name, sampled)), 1))
    # The name shifts the choice: other cases of one list are taken by each test.
    shift = zlib.crc32(name.partition("::")[2].encode())
    left = [case for case in cases if (sum(case.callspec.indices.values()) + shift) % every]
    return left if len(left) < len(cases) else left[1:]


def mark(item: pytest.Item) -> None:
    """Marks a test by its folder, by what it costs, and as short."""
    folder = item.path.relative_to(TESTS).parts[0] if item.path.is_relative_to(TESTS) else "unit"  # helios's doctests
    if folder in FOLDERS:
        item.add_marker(folder)
    if isinstance(item, pytest.DoctestItem):
        item.add_marker("unit")
    if "shared_spark" in getattr(item, "fixturenames", ()):
        item.add_marker("spark")
    elif not item.get_closest_marker("unit"):
        item.add_marker("process")
    unit = item.get_closest_marker("unit") and not item.get_closest_marker("slow")
    if unit or any(promise.shows(item) for promise in PROMISES):
        item.add_marker("short")
    elif any(within(item.nodeid, name) for name in LONG):
        item.add_marker("slow")
