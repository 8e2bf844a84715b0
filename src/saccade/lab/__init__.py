"""The lab: what papers claim, put to the test; a leaderboard; and the demo. With their statistics, plots and pages."""
