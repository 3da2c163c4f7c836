"""``python -m pipeline`` is the command ``pipeline``."""

from posttrain_pipeline.command import main

main()
