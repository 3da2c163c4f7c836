"""What must be true of rows, for posttrain-pipeline.

``invariants/`` has one file per subject (labels, packs, ...): what is measured, and what must hold.
``readback/`` has what they are measured on: stored rows, with their layout undone.
``metric_tables`` puts the columns of all subjects side by side; ``validate`` judges rows in stream
by them, ``gate`` what was written, with Great Expectations (``gx/``) and polars: its ``verdict``.
``audits/`` look at the data as a whole.
"""

DISTRIBUTION = "posttrain-pipeline"
