"""The planner: one table, pure functions over it, and the words that explain a decision."""
