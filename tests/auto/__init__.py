"""Scripts of one process on ranks: unchanged, and with the same result."""
