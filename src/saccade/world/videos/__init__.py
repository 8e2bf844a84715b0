"""Videos of the built-in world: stories with exact times, what is said of them, and their frames."""
