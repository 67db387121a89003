"""Watching the training: whether it hangs, has begun or ended, what its checkpoints are, what a recovery of it lacks.

Each module answers one question about the job from what agents, ranks and MindIO have told. None sends an order.
"""
