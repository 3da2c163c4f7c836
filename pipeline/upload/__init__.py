"""``pipeline publish``: sends a checked build to a folder, a store or the hub.

What is sent is a copy of the build without what is only for its makers: ``run.json``, and the text
of refused rows. It has a manifest of its own, which names every file of the copy.
"""
