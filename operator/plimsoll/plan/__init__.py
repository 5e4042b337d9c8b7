"""For one model, engine, GPU type and traffic: what fits, how, and where did every byte go?"""
