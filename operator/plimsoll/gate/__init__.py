"""How many requests of each lane may each worker hold, and what changes at the gate right now?"""
