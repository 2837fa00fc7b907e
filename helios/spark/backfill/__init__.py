"""Backfills: replaces rows of earlier batches with the rows that the current script computes."""
