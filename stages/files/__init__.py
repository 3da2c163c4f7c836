"""Files as bytes: versions, hashes, compression, limits, counted rows, strict JSON and TOML."""
