"""The same core with a terminal in front. `plan`, `explain`, `render` and `facts` need no cluster."""
