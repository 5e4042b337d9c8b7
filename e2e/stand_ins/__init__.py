"""What plays a part in the stories that no cluster gives us: a wire that breaks on demand, cards."""
