"""Rehearsals: the batches of commits once more, by the script as it is now, into a lake of their own."""
