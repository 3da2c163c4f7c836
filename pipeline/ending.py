"""The signals that end a command, which cleans up behind itself: Ctrl-C, a scheduler that wants the
machine back, and a terminal or a connection that goes."""

import signal

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
