"""One panel per kind of explanation."""
