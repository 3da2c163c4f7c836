"""What a row says: which of its columns were read, which were not, and the batches they become."""
