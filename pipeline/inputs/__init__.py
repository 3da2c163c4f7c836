"""What the user points at: files, their formats, and questions about columns."""
