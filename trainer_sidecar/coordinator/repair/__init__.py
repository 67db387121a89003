"""Carrying out what was decided about a fault, a move or another size: on the ranks, and with MindIO.

`orders` turns the operator's order into targets and into what is desired of MindIO, `standing` decides while the
operator is away, `driver` carries out what the conversation says.
"""
