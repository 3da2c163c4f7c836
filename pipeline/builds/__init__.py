"""A finished build in a folder: ``Build.open(DIR)``.

    build          ``Build``: what the records of ``pipeline.manifest`` and the shards say, read on
                   first use
    files          compares the files of a build with the hashes in its manifest
    model          the model, from the build's own tokenizer
    stored         how a shard lies on the disk: our columns, or a trainer's with the rest beside
    examples       training rows back to single examples, whatever layout they are stored in
    drift          what changed against the build that is being replaced

Nothing here imports the code that makes builds, so that a trainer can read one without it.
"""
