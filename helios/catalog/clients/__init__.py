"""PyIceberg's clients, each with what it lacks: timeouts, pools, safety between threads. Loaded when first used."""
