"""What runs beside a training: coordinator, agent, launcher, controller host."""
