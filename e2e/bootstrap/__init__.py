"""Set-up of a fresh machine, with the standard library only: it runs before anything is installed.

Everything it makes lives in one cache directory (`paths.py`), so that a checkout stays clean and a second checkout
finds what the first one built. docs/internals/set-up.md tells it from the user's side.
"""
