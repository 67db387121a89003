"""Makes a HATrainingJob of a job of another kind: what it says, what is left out and why, what a person must decide."""
