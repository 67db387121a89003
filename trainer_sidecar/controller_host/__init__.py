"""The host of the MindIO controller: the first process of the `controller` container.

It runs in the user's training image, so that controller and processors are always of the same MindIO version, and
is copied in: standard library only, Python 3.7 or newer. It is the one place that imports `mindio_ttp`. The
coordinator drives it over a unix socket (docs/protocols/sidecar.md, "The controller host").
"""
