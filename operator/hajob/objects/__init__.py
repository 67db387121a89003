"""Every Kubernetes object that Hajob makes, built by pure functions: models in, plain dictionaries out."""
