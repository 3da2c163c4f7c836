"""Comma-separated values with a header, plain, gzip or zstandard; every cell is text."""

from stages.readers._delimited import Delimited

READER = Delimited("csv", (".csv", ".csv.gz", ".csv.zst"), ",")
