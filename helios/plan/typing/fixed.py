"""The types of expressions whose type does not depend on their arguments."""

from __future__ import annotations

from helios.plan.typing.types import VOID, SparkType, array, decimal

STRING, INT, BIGINT, DOUBLE = SparkType("string"), SparkType("int"), SparkType("bigint"), SparkType("double")
BOOLEAN, DATE, TIMESTAMP, BINARY = SparkType("boolean"), SparkType("date"), SparkType("timestamp"), SparkType("binary")

_CLASSES = {
    BOOLEAN: "And Or Not EQ NEQ GT GTE LT LTE NullSafeEQ NullSafeNEQ Is Like ILike RegexpLike Escape In Between Exists "
    "Boolean LogicalAnd LogicalOr Any Contains StartsWith EndsWith ArrayContains IsNan EqualNull MapContainsKey",
    INT: "Year Month Day DayOfMonth DayOfWeek DayOfYear WeekOfYear Quarter Hour Minute Second Length BitLength "
    "Levenshtein Ascii StrPosition ArraySize RegexpCount UnixDate RowNumber Rank DenseRank Ntile BitwiseCount",
    BIGINT: "Count CountIf ApproxDistinct IntDiv StrToUnix UnixSeconds UnixMillis UnixMicros ArrayPosition "
    "TimestampDiff Factorial",
    DOUBLE: "Stddev StddevSamp StddevPop Variance VariancePop Corr CovarPop CovarSamp Skewness Kurtosis PercentRank "
    "CumeDist Sqrt Cbrt Pow Exp Ln Log Sin Cos Tan Asin Acos Atan Atan2 Radians Degrees Pi Rand Randn MonthsBetween "
    "Sign",
    STRING: "ConcatWs Lower Upper Trim Replace RegexpReplace RegexpExtract SubstringIndex SplitPart ArrayToString "
    "Repeat Initcap Translate Chr Space Format Soundex MD5 SHA SHA2 ToBase64 Hex TimeToStr UnixToStr ToChar "
    "JSONExtractScalar JSONFormat Typeof CurrentUser Uuid",
    DATE: "TsOrDsToDate TsOrDsAdd AddMonths LastDay NextDay DateTrunc CurrentDate DateFromUnixDate",
    TIMESTAMP: "StrToTime CurrentTimestamp TimestampTrunc TimestampFromParts AtTimeZone FromTimeZone",
    SparkType("timestamp_ntz"): "Localtimestamp",
    BINARY: "HexString FromBase64 Unhex Encode ToBinary",
    VOID: "Null",
    array(STRING): "RegexpSplit RegexpExtractAll",
}

FIXED = {name: kind for kind, names in _CLASSES.items() for name in names.split()}
"""The type of each of these expressions, by the name of its class in sqlglot."""

FIXED_CALLS: dict[str, SparkType] = {
    **dict.fromkeys(("bigint", "crc32", "xxhash64", "monotonically_increasing_id"), BIGINT),
    **dict.fromkeys(("weekday", "octet_length", "hash", "cardinality", "spark_partition_id"), INT),
    **dict.fromkeys(("now", "to_timestamp_ltz", "try_to_timestamp"), TIMESTAMP),
    **dict.fromkeys(("timestamp_seconds", "timestamp_millis", "timestamp_micros"), TIMESTAMP),
    **dict.fromkeys(("isnull", "isnotnull", "every", "some", "forall"), BOOLEAN),
    **dict.fromkeys(("format_number", "bin", "conv", "input_file_name", "version"), STRING),
    "binary": BINARY,
    "decimal": decimal(10, 0),
    "e": DOUBLE,
    "make_date": DATE,
    "smallint": SparkType("smallint"),
    "tinyint": SparkType("tinyint"),
    "to_timestamp_ntz": SparkType("timestamp_ntz"),
}
"""The types of functions for which sqlglot has no class, by the name of the function."""
