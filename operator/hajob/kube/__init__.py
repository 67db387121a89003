"""The Kubernetes API for the operator and the command line: client, informers, Events, limits, credentials."""
