"""The files of a build that describe it, as typed records: manifest, audits, run, rejects."""
