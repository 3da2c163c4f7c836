"""Which examples a build uses, how often, and on which side of its split they are."""
