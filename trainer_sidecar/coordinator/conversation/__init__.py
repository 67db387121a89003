"""The conversation with MindIO's controller: one table, its guards and effects, and MindIO's callbacks as its events.

It knows nothing of pods, orders or incidents: events and decisions come in, commands go out.
"""
