"""What models of a task have in common: protocols and the registry."""
