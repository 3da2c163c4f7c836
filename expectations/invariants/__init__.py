"""One law per file: each provides INVARIANT; the file's name is the law's name."""
