"""Messages to coordinators, in the protocol's types; pure."""
