"""What the user declares: frozen values, standard library only."""
