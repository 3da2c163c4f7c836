"""What a command tells people and machines: its result, its progress, and whom it notifies.

result      how a command ended, as one record: the object of ``--json``
session     how one command talks, and the one place where it ends
progress    what is being done, and how far it is
following   who shows that: lines of JSON or of text (lines), or a terminal (screen, painted)
notify      a command of the user's that gets the result
"""
