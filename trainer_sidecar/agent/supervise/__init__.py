"""The pod's processes: what the order wants of them, what the launcher says of them, how they end.

Nothing here is told to the coordinator: that is the room above, `report`.
"""
