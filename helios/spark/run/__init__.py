"""Running pipelines: startup validation, batches, restarts, and the handle."""
