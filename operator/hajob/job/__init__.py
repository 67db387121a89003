"""One job: its controller, what it observes, what it wants of its pods, and its status."""
