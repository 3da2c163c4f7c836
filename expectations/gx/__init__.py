"""Great Expectations: importing it, its suites, running them over a table, its pages."""
