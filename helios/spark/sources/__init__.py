"""Sources: offsets, and the rows between two of them as DataFrames."""
