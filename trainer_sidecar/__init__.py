"""The processes that run beside a training: coordinator, agent, launcher, controller host."""
