"""The demo: a training on a local cluster is hit twice and ends as if nothing had happened.

What is seen is separate from what is done: `board` is the picture of a moment, `lines`, `grid` and `table` turn
pictures and accounts into text without doing anything; `screen` puts them on a terminal or into a file,
`observer` takes the pictures, `acts` makes things happen.
"""
