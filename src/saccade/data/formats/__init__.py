"""Feature files of other tools: read, checked, converted."""
