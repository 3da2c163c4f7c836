"""``pipeline diff``: what changed from one build to another, example by example.

numbers      a build's examples as arrays of numbers: who they are, what is in them, where
matching     which examples of two builds are the same, moved, changed, added or removed
difference   all that differs, as one object, with the texts of a few examples
words, page  the same for the terminal and as a page of its own
"""
