"""What models of one kind share: `Model` and the registry, `Matcher`, `Captioner`."""
