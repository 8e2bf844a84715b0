"""The leaderboard: one table over many models of one task on one data set: how good they are, and what that costs."""
