"""Sinks: each stages batches for a kind of target, and commits each batch exactly once."""
