"""A finished build in a folder: ``Build.open(DIR)`` and the records that its files hold.

    json_records   JSON to typed records and back; the only place where a file of a build is a dict
    manifest       the records of ``manifest.json``; model_record, counts: parts of it
    records        the records of the files beside it: run, serving, validation, audits, rejects
    files          the files of a build beside the hashes that its manifest gives
    identity       the build's id, from what its manifest says
    build          ``Build``: everything above, read when it is asked for
    model          the model, from the build's own tokenizer

Nothing here imports what makes builds, so that a trainer reads one without it.
"""
