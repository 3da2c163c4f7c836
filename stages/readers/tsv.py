"""Tab-separated values with a header, plain, gzip or zstandard; every cell is text."""

from stages.readers._delimited import Delimited

READER = Delimited("tsv", (".tsv", ".tsv.gz", ".tsv.zst"), "\t")
