"""Deliveries of webhooks as sources."""
