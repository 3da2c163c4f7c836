"""The files that describe a build, as typed records.

manifest       the records of ``manifest.json``; model_record, counts: parts of it
records        the records of the other files: run, serving, validation, audits, rejects
json_records   JSON to records and back; only here a file of a build is a dict
build_id       the build's id, from its recipe and its inputs
seal           the hash that a file holds of its own content
dataset_files  what makes the folder a ``datasets`` directory
"""
