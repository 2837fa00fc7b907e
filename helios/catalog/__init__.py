"""Catalogs and storages as data, and catalog operations through PyIceberg, which loads at the first use."""
