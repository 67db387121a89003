"""The operator's process: settings, kopf's frontend, the caches' informers, and the core that holds all jobs."""
