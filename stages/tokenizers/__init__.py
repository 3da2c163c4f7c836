"""Where a tokenizer's bytes come from: a directory, the hub's cache, the hub, or built in."""
