"""Whether a build may be published: the gate, the refused rows, their limits."""
