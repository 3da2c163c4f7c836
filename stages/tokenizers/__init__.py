"""Models by name: their profiles, and the bytes of their tokenizers, wherever they come from."""
