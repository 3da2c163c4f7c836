"""Finished builds: one is read, takes the place of another, and is kept as a version.

    build, model, stored  ``Build``: what the records of ``pipeline.manifest`` and the shards say,
                          read on first use
    packs                 training rows back to single examples
    summary, limits       what a build says in a few lines, and what changed against the one before
    publish, place        a staged build takes its place in one step
    versions, history     builds that are kept beside each other, in a folder or in a store

Nothing here imports the code that makes builds, so that a trainer can read one without it.
"""
