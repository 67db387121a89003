"""One start of the whole job: its controller and ranks come up, and each agent is told what its pod is to run.

Ranks that run already are not started: that is the room above, `takeover`.
"""
