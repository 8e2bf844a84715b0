"""The claims lab: what each paper says is better than what, trained and measured again, with its tests and verdicts."""
