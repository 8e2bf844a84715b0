"""What all drawn pictures are made of: marks, type, curves, heat."""
