"""The witness: says what rows must have become, from nothing that the build has made of them.

It is given a case (plain values: where the inputs are, what the user was told of their reading, and
the folder that will be published), and shares no code with what it judges::

    raw      the bytes of a row, by its position in its file
    said     what a row says; ``talks``, ``pairs`` and ``steps`` have the shapes of each task
    tokens   what that is in tokens, by ``transformers`` over the folder ``tokenizer/``
    stored   which rows are drawn, and the examples of them that the shards have
    attest   both side by side

What it cannot read it does not judge: such rows are counted, each with the reason.
"""
