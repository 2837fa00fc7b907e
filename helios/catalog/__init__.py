"""Catalogs and storages as values, and catalog operations through PyIceberg, which is imported at the first use."""
