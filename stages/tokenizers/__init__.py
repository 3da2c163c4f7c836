"""The source of a tokenizer's bytes: a directory, the hub's cache, the hub, or built in."""
