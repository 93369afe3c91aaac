"""Tables of what commands leave in folders, for notebooks: CSV, Parquet, Arrow."""
