"""Watching the training: whether it hangs, has begun, has ended, what its checkpoints are, what it lacks for a recovery.

Each module answers one question about the job from what agents, ranks and MindIO have told. None sends an order.
"""
