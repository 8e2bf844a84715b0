"""Text files: captions, results, concepts, boxes; lines and JSON read with faults named."""
