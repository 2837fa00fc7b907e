"""Rehearsals: run the batches of past commits again with the current script, into a temporary lake."""
