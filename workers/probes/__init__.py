"""What is looked at in an engine: configuration, compile timeline, pass matches, taps, guards, memory."""
