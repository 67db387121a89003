"""Processes that exercise a MindIO package and say what they see: one controller, some ranks, a board of steps.

They talk to whoever started them in lines of Python literals on stdin and stdout, because JSON has no integer keys.
Nothing here knows which package it runs on.
"""
