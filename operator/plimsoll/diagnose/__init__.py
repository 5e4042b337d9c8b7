"""What kind of trouble a worker is in, and whether recycling is the cure. Nobody works here yet."""
