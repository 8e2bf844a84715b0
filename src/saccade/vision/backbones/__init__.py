"""Networks from pictures to feature maps at several strides."""
