"""Great Expectations: its import, its suites, its run over a table, its pages."""
