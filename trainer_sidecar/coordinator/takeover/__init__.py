"""Taking over ranks that run: by a coordinator that was restarted, or by another MindIO controller for a lost one.

`takeover` adopts the ranks and, by `replay`, the conversation. `successor` brings another controller into service;
`partial_action` and `resumption` tell what of an unfinished repair it can go on with.
"""
