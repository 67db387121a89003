"""What several test modules share: worlds to run code in, fakes of what it talks to, builders of its objects."""
