"""What does the gate keep, cost and give: real HAProxy, engines that only pretend to compute."""
