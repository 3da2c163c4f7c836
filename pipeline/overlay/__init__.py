"""``pipeline overlay``: a model directory with this build's tokenizer."""
