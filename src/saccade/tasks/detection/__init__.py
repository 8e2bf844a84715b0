"""Detection: find the things of a picture and name them."""
