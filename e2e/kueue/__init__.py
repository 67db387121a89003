"""A stand-in for Kueue's manager on the local cluster: quota, preemption and webhooks as unkind as the real ones."""
