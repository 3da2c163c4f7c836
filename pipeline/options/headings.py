"""The headings of a command's help, in their order; each option of a build names its own."""

from __future__ import annotations

DATA = "Data"
MODEL = "Model"
TRAINED = "What is trained"
LAYOUT = "Layout"
OUTPUT = "Output"
LIMITS = "Limits"
RUN = "Run"
ROWS = "Which rows"  # of what looks at a build
DRAWN = "How they are drawn"

ORDER = (DATA, ROWS, MODEL, TRAINED, LAYOUT, OUTPUT, LIMITS, DRAWN, RUN)

# Of an option that names none, by its phase.
OF_PHASE = {"source": DATA, "parts": MODEL, "plan": LAYOUT, "judge": LIMITS, "run": RUN}

# Of the commands, in the help of the program.
FIRST = "First steps"
BUILDS = "Builds"
LOOK = "Look at builds"
SHARE = "Share builds"
MACHINES = "Many machines"
MORE = "More"

COMMANDS = (FIRST, BUILDS, LOOK, SHARE, MACHINES, MORE)
