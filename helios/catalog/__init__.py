"""Data about catalogs and storages, and catalog operations through PyIceberg; importing it imports neither engine."""
