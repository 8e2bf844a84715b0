"""Questions about the world: what is asked of its scenes and concepts, in words and as programs, and their answers."""
