"""llama.cpp's habits: cells of a fixed cache per slot, layers kept on the card, flags by build."""
