"""What a model is declared to be, and the encoders of its text."""
