"""What goes into a build: files and their formats, questions about them, the model, versions."""
