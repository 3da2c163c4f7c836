"""What a row says: its columns, its turns, which of them are trained, and their batches."""
