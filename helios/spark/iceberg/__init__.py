"""Iceberg's Java API: tables, transactions, validators, scan tasks and schema changes."""
