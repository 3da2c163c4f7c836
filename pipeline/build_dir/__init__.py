"""A finished build in a folder: ``Build.open(DIR)`` and the records that its files hold.

    json_records   JSON to typed records and back; only here a file of a build is a dict
    manifest       the records of ``manifest.json``; model_record, counts: parts of it
    records        the records of the other files: run, serving, validation, audits, rejects
    files          compares the files of a build with the hashes in its manifest
    identity       the build's id, from its recipe and its inputs
    build          ``Build``: everything above, read on first use
    model          the model, from the build's own tokenizer

Nothing here imports the code that makes builds, so that a trainer can read one without it.
"""
