"""What the built-in world gives: pictures, videos and shoppers."""
