"""A plan of bounded size: a large build is planned window by window, by workers.

A window is a run of consecutive parts, ``WINDOW_PARTS`` at most and of ``WINDOW_EXAMPLES`` at most
where it has more than one. Whatever depends on an order (the packs, the padding, where a shard
ends) is decided inside a window, from the files of numbers of its
parts, and written to a file that the makers of its shards read. What is asked of all examples at
once (which are equal, which groups there are) is asked of buckets: every window writes its digests
grouped by their first byte, and a worker looks at one byte's from all windows. So no process ever
holds more than one window or one bucket, and the one that starts the build holds neither.

A build of one window is planned in one memory (``shards.plan``), as the windows of a large one are.
"""
