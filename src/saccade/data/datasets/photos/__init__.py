"""Photos with sentences, boxes, relations and what people think of them."""
