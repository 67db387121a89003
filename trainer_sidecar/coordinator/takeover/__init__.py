"""Taking over ranks that run: by a coordinator that was restarted, or by another MindIO controller for a lost one.

`takeover` adopts the ranks and, by `replay`, the conversation; `successor` brings another controller into service, whose
part of an unfinished repair `partial_action` and `resumption` decide.
"""
