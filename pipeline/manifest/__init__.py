"""The files that describe a build, as typed records."""
