"""A page of jobs, ranks and nodes in a browser: `kubectl hajob ui`, and the same server for a team.

What it shows are functions of objects that are watched with the rights of whoever looks (`live`, `cached`), the same
as the commands print (`hajob.cli`); `jobs`, `one_job`, `nodes` put them together as JSON. It writes nothing.
"""
