"""Rehearsals: the batches of past commits run again with the current script, into a temporary lake."""
