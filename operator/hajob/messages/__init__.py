"""What coordinators are told, as messages of the protocol; pure."""
