"""A second, independent reading of sampled rows, which the first must agree with."""
