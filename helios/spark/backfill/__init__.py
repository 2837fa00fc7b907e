"""Backfills: replaces rows of earlier batches by those that the script gives now, beside the running pipeline."""
